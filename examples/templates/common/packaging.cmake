# Packages: `cpack -G DEB`, `cpack -G RPM`, or `cpack` for all that this machine can make. weft's own package sees that a plugin comes
# or goes, and renews its index.
set(CPACK_PACKAGE_NAME weft-@package@)
set(CPACK_PACKAGE_VENDOR "@vendor@")
set(CPACK_PACKAGE_CONTACT "@vendor@ <maintainer@example.org>")
set(CPACK_PACKAGE_DESCRIPTION_SUMMARY "${PROJECT_DESCRIPTION}")
set(CPACK_PACKAGING_INSTALL_PREFIX ${WEFT_PREFIX})  # weft looks for plugins beside its library
set(CPACK_STRIP_FILES ON)

set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_PACKAGE_SECTION net)
set(CPACK_DEBIAN_PACKAGE_DEPENDS libweft1)
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS ON)

set(CPACK_RPM_FILE_NAME RPM-DEFAULT)
set(CPACK_RPM_PACKAGE_LICENSE BSD-2-Clause)
set(CPACK_RPM_PACKAGE_REQUIRES libweft1)
# Folders that are weft's, or the system's.
foreach(folder ${WEFT_PREFIX}/${WEFT_PLUGIN_INSTALL_DIR}/plugins.d ${WEFT_PREFIX}/${CMAKE_INSTALL_DATAROOTDIR}/doc)
  while(NOT folder STREQUAL "/")
    list(APPEND CPACK_RPM_EXCLUDE_FROM_AUTO_FILELIST_ADDITION ${folder})
    cmake_path(GET folder PARENT_PATH folder)
  endwhile()
endforeach()

find_program(DPKG_DEB dpkg-deb)
find_program(RPMBUILD rpmbuild)
set(CPACK_GENERATOR)
if(DPKG_DEB)
  list(APPEND CPACK_GENERATOR DEB)
endif()
if(RPMBUILD)
  list(APPEND CPACK_GENERATOR RPM)
endif()
if(NOT CPACK_GENERATOR)
  set(CPACK_GENERATOR TGZ)
endif()
include(CPack)
