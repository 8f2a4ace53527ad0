# Looks for the header of XLA's foreign functions, which is in jaxlib's wheel. Sets TCONV_HAVE_JAX and TCONV_JAX_HEADERS.

set(TCONV_HAVE_JAX OFF)
if(TCONV_JAX STREQUAL "OFF")
  return()
endif()
set(TCONV_JAX_HEADERS ${TCONV_JAXLIB_INCLUDE})
if(NOT TCONV_JAX_HEADERS)
  find_package(Python3 COMPONENTS Interpreter QUIET)
  if(Python3_Interpreter_FOUND)
    execute_process(
      COMMAND ${Python3_EXECUTABLE} -c
        "import importlib.util as u; print(*u.find_spec('jaxlib').submodule_search_locations, 'include', sep='/', end='')"
      OUTPUT_VARIABLE TCONV_JAX_HEADERS ERROR_QUIET)
  endif()
endif()
set(TCONV_JAX_EXTENSION)
if(EXISTS "${TCONV_JAX_HEADERS}/xla/ffi/api/c_api.h")
  # Older jaxlibs have another interface.
  file(STRINGS "${TCONV_JAX_HEADERS}/xla/ffi/api/c_api.h" TCONV_JAX_EXTENSION REGEX XLA_FFI_Metadata_Extension)
endif()
if(TCONV_JAX_EXTENSION)
  set(TCONV_HAVE_JAX ON)
  message(STATUS "tconv.jax: with the header in ${TCONV_JAX_HEADERS}")
elseif(TCONV_JAX STREQUAL "ON" OR TCONV_JAXLIB_INCLUDE)
  message(FATAL_ERROR "tconv.jax needs xla/ffi/api/c_api.h of a newer jaxlib, which is not in TCONV_JAXLIB_INCLUDE=${TCONV_JAXLIB_INCLUDE}: "
    "python -c 'import jax; print(jax.ffi.include_dir())' prints the directory")
else()
  message(STATUS "tconv.jax: left out, there is no jaxlib, or an older one")
endif()
