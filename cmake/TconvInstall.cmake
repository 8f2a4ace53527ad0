# Install rules: both libraries, the headers, the package for find_package(tconv) and for pkg-config. Every path in what
# is installed is relative to where it lies, so that the tree may be moved.
include(CMakePackageConfigHelpers)

set(TCONV_PACKAGE_DIR ${CMAKE_INSTALL_LIBDIR}/cmake/tconv)

install(DIRECTORY ${PROJECT_SOURCE_DIR}/include/tconv DESTINATION ${CMAKE_INSTALL_INCLUDEDIR} COMPONENT development
  FILES_MATCHING PATTERN "*.h")
install(TARGETS tconv EXPORT tconv-shared
  LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR} COMPONENT runtime NAMELINK_COMPONENT development)
install(TARGETS tconv_static EXPORT tconv-static
  ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR} COMPONENT development)

# Two exports, because only the static library makes its user find what it is built on.
foreach(kind IN ITEMS shared static)
  install(EXPORT tconv-${kind} FILE tconv-${kind}-targets.cmake NAMESPACE tconv:: DESTINATION ${TCONV_PACKAGE_DIR}
    COMPONENT development)
endforeach()
configure_package_config_file(${PROJECT_SOURCE_DIR}/cmake/tconv-config.cmake.in
  ${PROJECT_BINARY_DIR}/tconv-config.cmake INSTALL_DESTINATION ${TCONV_PACKAGE_DIR} NO_SET_AND_CHECK_MACRO)
write_basic_package_version_file(${PROJECT_BINARY_DIR}/tconv-config-version.cmake COMPATIBILITY SameMinorVersion)
install(FILES
  ${PROJECT_BINARY_DIR}/tconv-config.cmake ${PROJECT_BINARY_DIR}/tconv-config-version.cmake
  ${PROJECT_SOURCE_DIR}/cmake/FindHwloc.cmake
  DESTINATION ${TCONV_PACKAGE_DIR} COMPONENT development)

# pkg-config: the prefix is found from where tconv.pc lies. An absolute library directory stays absolute.
set(pc_dir ${CMAKE_INSTALL_LIBDIR}/pkgconfig)
if(IS_ABSOLUTE ${CMAKE_INSTALL_LIBDIR})
  set(TCONV_PC_PREFIX ${CMAKE_INSTALL_PREFIX})
  set(TCONV_PC_LIBDIR ${CMAKE_INSTALL_LIBDIR})
else()
  file(RELATIVE_PATH pc_up /${pc_dir} /)
  string(REGEX REPLACE "/$" "" pc_up ${pc_up})
  set(TCONV_PC_PREFIX "\${pcfiledir}/${pc_up}")
  set(TCONV_PC_LIBDIR "\${prefix}/${CMAKE_INSTALL_LIBDIR}")
endif()
if(IS_ABSOLUTE ${CMAKE_INSTALL_INCLUDEDIR})
  set(TCONV_PC_INCLUDEDIR ${CMAKE_INSTALL_INCLUDEDIR})
else()
  set(TCONV_PC_INCLUDEDIR "\${prefix}/${CMAKE_INSTALL_INCLUDEDIR}")
endif()
# For `pkg-config --static`. The static CUDA runtime lies where the toolkit is, which the file names if it has to.
set(TCONV_PC_LIBS_PRIVATE "-pthread -lm")
if(TCONV_OPENMP)
  string(PREPEND TCONV_PC_LIBS_PRIVATE "${OpenMP_C_FLAGS} ")
endif()
if(TCONV_HAVE_HWLOC)
  # By its name rather than by its own pkg-config file: what a static hwloc would need besides is often not installed.
  string(APPEND TCONV_PC_LIBS_PRIVATE " -lhwloc")
endif()
if(TCONV_HAVE_CUDA)
  get_filename_component(cudart_dir "${CUDA_cudart_static_LIBRARY}" DIRECTORY)
  string(APPEND TCONV_PC_LIBS_PRIVATE " -L${cudart_dir} -lcudart_static -ldl -lrt")
endif()
configure_file(${PROJECT_SOURCE_DIR}/cmake/tconv.pc.in ${PROJECT_BINARY_DIR}/tconv.pc @ONLY)
install(FILES ${PROJECT_BINARY_DIR}/tconv.pc DESTINATION ${pc_dir} COMPONENT development)

# Programs find the shared library beside them, wherever both were moved.
file(RELATIVE_PATH bin_to_lib /${CMAKE_INSTALL_BINDIR} /${CMAKE_INSTALL_LIBDIR})
set(CMAKE_INSTALL_RPATH "$ORIGIN/${bin_to_lib}")
