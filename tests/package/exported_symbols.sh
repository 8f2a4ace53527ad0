#!/usr/bin/env bash
# The shared object exports exactly what the headers declare with TCONV_API, and needs no library that a user would
# have to install: neither C++ nor the CUDA runtime nor the driver.
#     exported_symbols.sh LIBRARY HEADER...
set -euo pipefail
library=$1
shift

declared=$(cat "$@" | tr '\n' ' ' | grep -oE 'TCONV_API [^(;#]*\(' | grep -oE 'tconv_[a-z0-9_]+ *\($' | tr -d ' (' | sort -u)
exported=$(nm -D --defined-only "$library" | awk '$2 != "A" {sub(/@.*/, "", $3); print $3}' | sort -u)
[ "$(wc -l <<<"$declared")" -ge 15 ] || { echo "the headers declare too little to be true:"; echo "$declared"; exit 1; }
if ! diff <(echo "$declared") <(echo "$exported") >/dev/null; then
    echo "declared (<) and exported (>) differ:"
    diff <(echo "$declared") <(echo "$exported") || true
    exit 1
fi

needed=$(readelf -d "$library" | sed -n 's/.*NEEDED.*\[\(.*\)\]/\1/p')
if grep -E '^lib(stdc\+\+|gcc_s|cudart|cuda|nvrtc|cublas|cudnn)[.-]' <<<"$needed"; then
    echo "the library needs the above"
    exit 1
fi
echo "$(wc -l <<<"$exported") symbols, as declared; needs: $(tr '\n' ' ' <<<"$needed")"
