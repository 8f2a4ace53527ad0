# The options of the build. Where tconv is part of another project, its tests, program and examples are off.

# A cache variable that takes AUTO (use it where it is found), ON (fail where it is not) or OFF.
function(tconv_auto_option name help)
  set(${name} AUTO CACHE STRING "${help}: AUTO, ON or OFF")
  set_property(CACHE ${name} PROPERTY STRINGS AUTO ON OFF)
  string(TOUPPER "${${name}}" value)
  if(NOT value MATCHES "^(AUTO|ON|OFF)$")
    message(FATAL_ERROR "${name}=${${name}}: must be AUTO, ON or OFF")
  endif()
  set(${name} ${value} PARENT_SCOPE)
endfunction()

tconv_auto_option(TCONV_CUDA "Build the CUDA backend")
tconv_auto_option(TCONV_HWLOC "Learn the machine's cores and caches from hwloc")
option(TCONV_BUILD_TESTS "Build the tests (needs Criterion)" ${PROJECT_IS_TOP_LEVEL})
option(TCONV_BUILD_KERNEL_CHECKS "Build check_kernels of the tests, also where the others are not" OFF)
option(TCONV_BUILD_CUDA_CHECKS "Build check_cuda_kernels of the tests, where there is CUDA: the kernels are compiled again" ON)
option(TCONV_STACK_USAGE "Have gcc report each function's frame beside the object, in a release build" ${TCONV_BUILD_TESTS})
option(TCONV_BUILD_CLI "Build the tconv program" ${PROJECT_IS_TOP_LEVEL})
option(TCONV_BUILD_EXAMPLES "Build the examples (upscale needs libpng)" ${PROJECT_IS_TOP_LEVEL})
option(TCONV_BUILD_TORCH "Build what tconv.torch has in C" ${PROJECT_IS_TOP_LEVEL})
option(TCONV_INSTALL "Make install rules" ${PROJECT_IS_TOP_LEVEL})
option(TCONV_DEBIAN "Make Debian packages by CPack (scripts/deb)" OFF)
option(TCONV_FUZZ "Build the fuzzers with libFuzzer (needs clang)" OFF)
set(TCONV_SANITIZE "" CACHE STRING "Sanitizers for the whole tree, as -fsanitize takes them: address,undefined")
set(TCONV_KERNEL_OPTIMISATION "" CACHE STRING
  "Optimisation of the CPU's kernels, for a build of which nothing runs (-O0); -O3, or -O1 with sanitizers, where it is empty")
option(TCONV_COVERAGE "Count which lines of the library run (gcc, for scripts/coverage)" OFF)

if(NOT CMAKE_BUILD_TYPE AND NOT CMAKE_CONFIGURATION_TYPES)
  set(CMAKE_BUILD_TYPE Release CACHE STRING "Debug, Release, RelWithDebInfo or MinSizeRel" FORCE)
endif()
