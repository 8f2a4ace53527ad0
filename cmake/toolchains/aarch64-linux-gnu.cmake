# AArch64 by Debian's and Ubuntu's cross compiler (gcc-aarch64-linux-gnu, libc6-dev-arm64-cross). Programs that CMake or
# ctest runs go through qemu-aarch64 (qemu-user), which finds the loader and the C library in the cross compiler's root.
set(CMAKE_SYSTEM_NAME Linux)
set(CMAKE_SYSTEM_PROCESSOR aarch64)
set(CMAKE_C_COMPILER aarch64-linux-gnu-gcc)

set(tconv_cross_root /usr/aarch64-linux-gnu)
set(CMAKE_FIND_ROOT_PATH ${tconv_cross_root})
set(CMAKE_FIND_ROOT_PATH_MODE_PROGRAM NEVER)
set(CMAKE_FIND_ROOT_PATH_MODE_LIBRARY ONLY)
set(CMAKE_FIND_ROOT_PATH_MODE_INCLUDE ONLY)
set(CMAKE_FIND_ROOT_PATH_MODE_PACKAGE ONLY)
set(CMAKE_CROSSCOMPILING_EMULATOR "qemu-aarch64;-L;${tconv_cross_root}")
