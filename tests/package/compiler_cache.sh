#!/usr/bin/env bash
# Tries what a compiler cache that outlives a tree may answer wrongly, with the settings that the environment has (scripts/checks.sh):
# an object of CUDA code of two architectures from before one of them changed, an object made without -Werror or -fstack-usage for a
# compilation with them.
#     compiler_cache.sh SCRATCH
# The part about CUDA is left out, and says so, where there is no nvcc.
set -euo pipefail
scratch=$1
rm -rf "$scratch"
mkdir -p "$scratch"
cd "$scratch"

fail() {
    echo "compiler_cache.sh: $*" >&2
    exit 1
}

# A text that no cache has seen.
mark=$(date +%s%N)$$

# ---------------------------------------------------------------------------------- options that are no part of the object
echo "int marked_$mark(int a); int marked_$mark(int a) { int unused; return a; }" >warns.c
read -ra launcher <<<"${CMAKE_C_COMPILER_LAUNCHER//;/ }"
gcc_warns() {
    "${launcher[@]}" gcc -O2 -Wall "$@" -c warns.c -o warns.o 2>warns.log
}
gcc_warns || fail "gcc does not compile what has a warning"
! gcc_warns -Werror || fail "a kept object is answered where -Werror refuses it"
grep -q unused warns.log || fail "there is no warning"
gcc_warns -fstack-usage
[ -s warns.su ] || fail "a kept object is answered without the report of frames"
rm warns.su
gcc_warns -fstack-usage
[ -s warns.su ] || fail "a kept object with a report of frames comes without it"
echo "gcc: warnings are errors and frames are reported, whatever is kept"

# ------------------------------------------------------------------------------------------------- code of two architectures
command -v nvcc >/dev/null || {
    echo "skipped: this needs nvcc"
    exit
}
read -ra launcher <<<"${CMAKE_CUDA_COMPILER_LAUNCHER//;/ }"
# compile_cuda NUMBER: as CMake has it done, -MD too. The header is read for one of the architectures alone.
compile_cuda() {
    cat >two.cu <<CODE
__global__ void marked_$mark(int *to)
{
#if __CUDA_ARCH__ >= 900
#include "newer.h"
    *to = NEWER + $1;
#else
    *to = 1;
#endif
}
CODE
    echo "#define NEWER $2" >newer.h
    "${launcher[@]}" nvcc -O3 --generate-code=arch=compute_80,code=sm_80 --generate-code=arch=compute_90a,code=sm_90a \
        -MD -MT two.o -MF two.d -c two.cu -o two.o
}
compile_cuda 1 100
cp two.o first.o
compile_cuda 1 100
cmp -s first.o two.o || fail "the same code makes another object"
compile_cuda 2 100
! cmp -s first.o two.o || fail "a change under __CUDA_ARCH__ is answered with the object from before"
compile_cuda 1 200
! cmp -s first.o two.o || fail "a change of a header that one architecture reads is answered with the object from before"
echo "nvcc: a change for one of two architectures makes another object"
