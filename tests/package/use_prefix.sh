#!/usr/bin/env bash
# Builds and runs the consumer project against the files that are installed in PREFIX, by CMake and by pkg-config, with
# the shared and with the static library.
#     use_prefix.sh PREFIX CONSUMER SCRATCH C_COMPILER [C FLAGS]
set -euo pipefail
prefix=$1 consumer=$2 scratch=$3 compiler=$4 flags=${5:-}
mkdir -p "$scratch"

pc=$(find "$prefix" -name tconv.pc)
library=$(cd "$(dirname "$pc")/.." && pwd)
export PKG_CONFIG_PATH=$library/pkgconfig

# run NAME PROGRAM: checks that the program runs, and links the shared library or not as its name says.
run() {
    local needed
    needed=$(readelf -d "$2" | grep -c 'NEEDED.*libtconv' || true)
    case $2 in
    *_shared) [ "$needed" -eq 1 ] || { echo "$1: does not use the shared library"; exit 1; } ;;
    *_static) [ "$needed" -eq 0 ] || { echo "$1: uses the shared library"; exit 1; } ;;
    esac
    echo "$1: $(LD_LIBRARY_PATH=$library "$2")"
}

cmake -S "$consumer" -B "$scratch/cmake" -DCMAKE_PREFIX_PATH="$prefix" -DCMAKE_C_COMPILER="$compiler" \
    -DCMAKE_C_FLAGS="$flags" >"$scratch/cmake.log" || { cat "$scratch/cmake.log"; exit 1; }
cmake --build "$scratch/cmake" >"$scratch/build.log" || { cat "$scratch/build.log"; exit 1; }
run "CMake, shared" "$scratch/cmake/consumer_shared"
run "CMake, static" "$scratch/cmake/consumer_static"

mkdir "$scratch/make"
make -s -C "$scratch/make" -f "$consumer/Makefile" CC="$compiler" CFLAGS="$flags"
run "pkg-config, shared" "$scratch/make/consumer_shared"
run "pkg-config, static" "$scratch/make/consumer_static"

version=$(sed -n 's/^#define TCONV_VERSION_STRING "\(.*\)"/\1/p' "$prefix"/include/tconv/version.h)
[ "$(pkg-config --modversion tconv)" = "$version" ] || { echo "tconv.pc is of another version than $version"; exit 1; }
