#!/usr/bin/env bash
# Installs a build, moves the installed files somewhere else, and uses them there (use_prefix.sh).
#     consumer.sh BUILD CONSUMER SCRATCH C_COMPILER [C FLAGS]
set -euo pipefail
build=$1 consumer=$2 scratch=$3 compiler=$4 flags=${5:-}

rm -rf "$scratch"
mkdir -p "$scratch"
cmake --install "$build" --prefix "$scratch/first" >"$scratch/install.log"
mv "$scratch/first" "$scratch/prefix"

# The installed files may be moved, and do not hold the path of the build.
if grep -rlF -e "$build" -e "$scratch/first" --include='*.cmake' --include='*.pc' "$scratch/prefix"; then
    echo "these files name a directory of the build"
    exit 1
fi
"$(dirname "$0")/use_prefix.sh" "$scratch/prefix" "$consumer" "$scratch/use" "$compiler" "$flags"
if [ -x "$scratch/prefix/bin/tconv" ]; then
    "$scratch/prefix/bin/tconv" --version # finds the library beside it, wherever both were moved
fi
rm -rf "$scratch"
