# What the library is built on. Sets TCONV_HAVE_CUDA and TCONV_HAVE_HWLOC, and a line about each for the summary.

find_package(OpenMP REQUIRED COMPONENTS C)
set(THREADS_PREFER_PTHREAD_FLAG ON)
find_package(Threads REQUIRED)

# --------------------------------------------------------------------------------------------------------------- hwloc

set(TCONV_HAVE_HWLOC OFF)
set(TCONV_HWLOC_SUMMARY "off")
if(NOT TCONV_HWLOC STREQUAL "OFF")
  find_package(Hwloc 2.0)
  if(Hwloc_FOUND)
    set(TCONV_HAVE_HWLOC ON)
    set(TCONV_HWLOC_SUMMARY "${Hwloc_VERSION}")
  elseif(TCONV_HWLOC STREQUAL "ON")
    message(FATAL_ERROR "TCONV_HWLOC=ON, but hwloc (2.0 or newer) was not found; on Debian it is libhwloc-dev")
  else()
    set(TCONV_HWLOC_SUMMARY "not found")
  endif()
endif()

# ---------------------------------------------------------------------------------------------------------------- CUDA

# Machine code for A100 and H100/H200, and PTX for what comes after.
if(NOT DEFINED CMAKE_CUDA_ARCHITECTURES)
  set(CMAKE_CUDA_ARCHITECTURES "80-real;90a-real;90-virtual" CACHE STRING "CUDA architectures")
elseif(CMAKE_CUDA_ARCHITECTURES STREQUAL "native") # CMake itself would leave out what Hopper alone has
  include(TconvGpus)
  tconv_gpu_architectures(CMAKE_CUDA_ARCHITECTURES)
  if(CMAKE_CUDA_ARCHITECTURES STREQUAL "" AND NOT TCONV_CUDA STREQUAL "OFF")
    message(FATAL_ERROR "CMAKE_CUDA_ARCHITECTURES=native, but there is no GPU of compute capability 8.0 or newer")
  endif()
endif()

set(TCONV_HAVE_CUDA OFF)
set(TCONV_CUDA_SUMMARY "off")
if(NOT TCONV_CUDA STREQUAL "OFF")
  # A toolkit is often installed without being on the PATH, and may have come since the last configuration.
  if(NOT CMAKE_CUDA_COMPILER)
    unset(CMAKE_CUDA_COMPILER CACHE)
    find_program(TCONV_NVCC nvcc HINTS ENV CUDA_HOME ENV CUDA_PATH PATHS /usr/local/cuda PATH_SUFFIXES bin)
    mark_as_advanced(TCONV_NVCC)
    if(TCONV_NVCC AND NOT DEFINED ENV{CUDACXX})
      set(ENV{CUDACXX} ${TCONV_NVCC})
    endif()
  endif()
  include(CheckLanguage)
  check_language(CUDA)
  if(CMAKE_CUDA_COMPILER)
    enable_language(CUDA)
    enable_language(CXX) # for files of the backend without device code; nvcc has found a host compiler already
    find_package(CUDAToolkit REQUIRED)
    set(TCONV_HAVE_CUDA ON)
    set(TCONV_CUDA_SUMMARY "${CMAKE_CUDA_COMPILER_VERSION} for ${CMAKE_CUDA_ARCHITECTURES}")
  elseif(TCONV_CUDA STREQUAL "ON")
    message(FATAL_ERROR "TCONV_CUDA=ON, but there is no working CUDA compiler; name one with CMAKE_CUDA_COMPILER")
  else()
    set(TCONV_CUDA_SUMMARY "not found")
  endif()
endif()
