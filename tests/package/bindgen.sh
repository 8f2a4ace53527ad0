#!/usr/bin/env bash
# tconv.h is a header that Rust's bindgen takes as it is: the bindings have C's layouts, and run a layer by a library.
#     bindgen.sh SOURCE SCRATCH LIBRARY [LINKER FLAGS...]
set -euo pipefail
source=$1 scratch=$2 library=$3
shift 3

for tool in bindgen rustc; do
    if ! command -v "$tool" >/dev/null || ! "$tool" --version >/dev/null 2>&1; then
        echo "skipped: this needs $tool"
        exit 0
    fi
done
rm -rf "$scratch"
mkdir -p "$scratch"
bindgen "$source/include/tconv/tconv.h" --allowlist-function 'tconv_.*' --allowlist-type 'tconv_.*' --allowlist-var 'TCONV_.*' \
    -o "$scratch/bindings.rs" -- "-I$source/include"
cp "$source/tests/package/bindgen/main.rs" "$scratch"
flags=("$library" "-Wl,-rpath,$(dirname "$library")" "$@")
rustc -A warnings --test -o "$scratch/layouts" "$scratch/bindings.rs" "${flags[@]/#/-Clink-arg=}"
"$scratch/layouts"
rustc -A warnings -o "$scratch/layer" "$scratch/main.rs" "${flags[@]/#/-Clink-arg=}"
"$scratch/layer"
rm -rf "$scratch"
