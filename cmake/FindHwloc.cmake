# Finds hwloc without pkg-config: Hwloc_FOUND, Hwloc_VERSION and the target Hwloc::hwloc. Installed beside the package
# config of tconv, because a program that links the static library links hwloc too.

find_path(Hwloc_INCLUDE_DIR hwloc.h)
find_file(Hwloc_CONFIG_HEADER hwloc/autogen/config.h HINTS ${Hwloc_INCLUDE_DIR})
find_library(Hwloc_LIBRARY hwloc)
mark_as_advanced(Hwloc_INCLUDE_DIR Hwloc_CONFIG_HEADER Hwloc_LIBRARY)

if(Hwloc_CONFIG_HEADER)
  file(STRINGS "${Hwloc_CONFIG_HEADER}" Hwloc_version_line REGEX "define HWLOC_VERSION \"")
  string(REGEX MATCH "[0-9]+\\.[0-9]+(\\.[0-9]+)?" Hwloc_VERSION "${Hwloc_version_line}")
  unset(Hwloc_version_line)
endif()

include(FindPackageHandleStandardArgs)
find_package_handle_standard_args(Hwloc REQUIRED_VARS Hwloc_LIBRARY Hwloc_INCLUDE_DIR VERSION_VAR Hwloc_VERSION)

if(Hwloc_FOUND AND NOT TARGET Hwloc::hwloc)
  add_library(Hwloc::hwloc UNKNOWN IMPORTED)
  set_target_properties(Hwloc::hwloc PROPERTIES
    IMPORTED_LOCATION "${Hwloc_LIBRARY}" INTERFACE_INCLUDE_DIRECTORIES "${Hwloc_INCLUDE_DIR}")
endif()
