# TCONV_DEBIAN: packages for Debian and Ubuntu by CPack (scripts/deb), one for each component of the install rules. What a package
# depends on, dpkg-shlibdeps reads from its programs and libraries.
set(tconv_soversion ${PROJECT_VERSION_MAJOR})
# Who makes the packages, as for Debian's own tools; there is no public address.
set(tconv_maintainer_name "$ENV{DEBFULLNAME}")
set(tconv_maintainer_email "$ENV{DEBEMAIL}")
if(NOT tconv_maintainer_name)
  set(tconv_maintainer_name "The tconv developers")
endif()
if(NOT tconv_maintainer_email)
  set(tconv_maintainer_email "root@localhost")
endif()
set(tconv_maintainer "${tconv_maintainer_name} <${tconv_maintainer_email}>")
set(tconv_debian_version ${PROJECT_VERSION}-1)
set(tconv_debian_dir ${PROJECT_BINARY_DIR}/debian)

function(tconv_debian_compress file compressed)
  file(ARCHIVE_CREATE OUTPUT ${tconv_debian_dir}/${compressed} PATHS ${file} FORMAT raw COMPRESSION GZip COMPRESSION_LEVEL 9)
endfunction()

set(CPACK_GENERATOR DEB)
set(CPACK_DEB_COMPONENT_INSTALL ON)
set(CPACK_COMPONENTS_GROUPING IGNORE)
set(CPACK_COMPONENTS_ALL runtime development program)
set(CPACK_PACKAGING_INSTALL_PREFIX ${CMAKE_INSTALL_PREFIX})
set(CPACK_OUTPUT_FILE_PREFIX ${PROJECT_BINARY_DIR}/packages)
set(CPACK_STRIP_FILES ON)
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_PACKAGE_RELEASE 1)
set(CPACK_DEBIAN_PACKAGE_MAINTAINER ${tconv_maintainer})
set(CPACK_DEBIAN_PACKAGE_CONTROL_STRICT_PERMISSION ON)
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS ON)
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS_PRIVATE_DIRS ${PROJECT_BINARY_DIR}) # where the program's libtconv is
set(CPACK_DEBIAN_PACKAGE_GENERATE_SHLIBS ON) # what a program that links libtconv depends on
set(CPACK_DEBIAN_PACKAGE_GENERATE_SHLIBS_POLICY ">=")
set(CPACK_DEBIAN_ENABLE_COMPONENT_DEPENDS ON) # of the same version

file(WRITE ${tconv_debian_dir}/triggers "activate-noawait ldconfig\n")
set(CPACK_DEBIAN_RUNTIME_PACKAGE_CONTROL_EXTRA ${tconv_debian_dir}/triggers)

file(WRITE ${tconv_debian_dir}/copyright "\
Format: https://www.debian.org/doc/packaging-manuals/copyright-format/1.0/
Upstream-Name: tconv

Files: *
Copyright: the tconv developers
License: Apache-2.0
 Licensed under the Apache License, Version 2.0, whose text is in
 /usr/share/common-licenses/Apache-2.0 on Debian systems.
")
string(TIMESTAMP tconv_now "%a, %d %b %Y %H:%M:%S +0000" UTC) # or SOURCE_DATE_EPOCH
file(WRITE ${tconv_debian_dir}/changelog "\
tconv (${tconv_debian_version}) unstable; urgency=medium

  * Made by scripts/deb from tconv ${PROJECT_VERSION}.

 -- ${tconv_maintainer}  ${tconv_now}
")
tconv_debian_compress(${tconv_debian_dir}/changelog changelog.Debian.gz)
tconv_debian_compress(${PROJECT_SOURCE_DIR}/cli/tconv.1 tconv.1.gz)

# tconv_debian_package(COMPONENT NAME SECTION CONTENTS): the package and its papers.
function(tconv_debian_package component name section contents)
  string(TOUPPER ${component} upper)
  set(CPACK_DEBIAN_${upper}_PACKAGE_NAME ${name} PARENT_SCOPE)
  set(CPACK_DEBIAN_${upper}_PACKAGE_SECTION ${section} PARENT_SCOPE)
  set(CPACK_DEBIAN_${upper}_DESCRIPTION
    "PyTorch's ConvTranspose2d and ONNX's ConvTranspose behind one C API.\nThis package has ${contents}." PARENT_SCOPE)
  install(FILES ${tconv_debian_dir}/copyright ${tconv_debian_dir}/changelog.Debian.gz
    DESTINATION ${CMAKE_INSTALL_DATADIR}/doc/${name} COMPONENT ${component})
endfunction()
tconv_debian_package(runtime libtconv${tconv_soversion} libs "the library")
tconv_debian_package(development libtconv-dev libdevel "the headers, the static library and files for CMake")
tconv_debian_package(program tconv science "the program that runs, verifies and times layers")
install(FILES ${tconv_debian_dir}/tconv.1.gz DESTINATION ${CMAKE_INSTALL_MANDIR}/man1 COMPONENT program)

include(CPack)
cpack_add_component(runtime)
cpack_add_component(development DEPENDS runtime)
cpack_add_component(program DEPENDS runtime)
