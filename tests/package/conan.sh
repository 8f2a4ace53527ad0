#!/usr/bin/env bash
# The recipe for Conan makes a package of this tree, and a program outside of the tree runs with the package.
#     conan.sh CONAN SCRATCH
set -euo pipefail
conan=$1 scratch=$2
recipe=$(cd "$(dirname "$0")/../../packaging/conan" && pwd)

rm -rf "$scratch"
mkdir -p "$scratch"
scratch=$(realpath "$scratch")
export CONAN_HOME=$scratch/home
"$conan" profile detect >/dev/null 2>&1
"$conan" create "$recipe" -c "tools.cmake.cmake_layout:test_folder=$scratch/test" -s build_type=Release >"$scratch/log" 2>&1 || {
    tail -n 60 "$scratch/log"
    exit 1
}
[ "$(grep -c '^tconv .*: right$' "$scratch/log")" -eq 2 ] || {
    echo "the programs of the package's test have not run"
    exit 1
}
rm -rf "$scratch"
