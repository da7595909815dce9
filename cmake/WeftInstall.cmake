# Where the parts of weft are installed, below the prefix, and `uninstall`. docs/packaging.md lists the components and these variables.
set(WEFT_PLUGIN_INSTALL_DIR ${CMAKE_INSTALL_LIBDIR}/weft)  # not for packagers: the library looks beside itself
set(WEFT_CMAKE_INSTALL_DIR ${CMAKE_INSTALL_LIBDIR}/cmake CACHE STRING "folder of the CMake packages")
set(WEFT_PKGCONFIG_INSTALL_DIR ${CMAKE_INSTALL_LIBDIR}/pkgconfig CACHE STRING
    "folder of libfabric.pc; another one where stock libfabric has a file of this name")
set(WEFT_SYSTEMD_UNIT_DIR lib/systemd/system CACHE STRING "folder of systemd's units")
set(WEFT_FI_PREFIX "" CACHE STRING
    "folder for bin/ and share/man/ of fi_info, fi_pingpong and fi_strerror, where stock libfabric has programs of these names")

# The programs named fi_*, and the way from them to the library.
set(WEFT_FI_BIN_DIR ${CMAKE_INSTALL_BINDIR})
set(WEFT_FI_MAN_DIR ${CMAKE_INSTALL_MANDIR})
if(WEFT_FI_PREFIX)
  set(WEFT_FI_BIN_DIR ${WEFT_FI_PREFIX}/bin)
  set(WEFT_FI_MAN_DIR ${WEFT_FI_PREFIX}/share/man)
endif()
cmake_path(RELATIVE_PATH CMAKE_INSTALL_LIBDIR BASE_DIRECTORY ${WEFT_FI_BIN_DIR} OUTPUT_VARIABLE WEFT_FI_TO_LIBRARY)

# What is installed, and where: install_manifest.txt knows no DESTDIR, and only the last installation.
function(weft_record_installation)
  install(CODE "
    foreach(file IN LISTS CMAKE_INSTALL_MANIFEST_FILES)
      file(APPEND \"${CMAKE_BINARY_DIR}/installed.txt\" \"\$ENV{DESTDIR}\${file}\\n\")
    endforeach()" ALL_COMPONENTS)
endfunction()
if(PROJECT_IS_TOP_LEVEL)
  cmake_language(DEFER DIRECTORY ${PROJECT_SOURCE_DIR} CALL weft_record_installation)
  add_custom_target(uninstall COMMAND ${CMAKE_COMMAND} -D BUILD=${CMAKE_BINARY_DIR} -P ${CMAKE_CURRENT_LIST_DIR}/uninstall.cmake
    COMMENT "Removing what was installed from here" VERBATIM)
endif()
