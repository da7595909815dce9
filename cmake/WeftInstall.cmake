# Where the parts of weft are installed, below the prefix, and `uninstall`. docs/packaging.md lists the components and these variables.

# weft_below_prefix(NAME): a folder below the prefix that is given with its whole path moves with the prefix, like all others: the
# variable gets the way from the prefix.
function(weft_below_prefix name)
  set(folder "${${name}}")
  cmake_path(IS_PREFIX CMAKE_INSTALL_PREFIX "${folder}" NORMALIZE below)
  if(below)
    cmake_path(RELATIVE_PATH folder BASE_DIRECTORY ${CMAKE_INSTALL_PREFIX})
    set(${name} "${folder}" PARENT_SCOPE)
  endif()
endfunction()
foreach(name BINDIR SBINDIR LIBDIR INCLUDEDIR DATADIR MANDIR DOCDIR)
  weft_below_prefix(CMAKE_INSTALL_${name})
endforeach()

# weft_way(OUT HERE FROM TO): the way from one folder of the installation to another. It begins with HERE, which names the first folder
# where the way is used ("$ORIGIN"). If either folder is outside of the prefix, the way is the whole path of the second.
function(weft_way out here from to)
  if(IS_ABSOLUTE "${from}" OR IS_ABSOLUTE "${to}")
    cmake_path(ABSOLUTE_PATH to BASE_DIRECTORY ${CMAKE_INSTALL_PREFIX} NORMALIZE OUTPUT_VARIABLE way)
  else()
    cmake_path(RELATIVE_PATH to BASE_DIRECTORY ${from} OUTPUT_VARIABLE way)
    cmake_path(SET way NORMALIZE "${way}")
    set(way "${here}/${way}")
  endif()
  string(REGEX REPLACE "/$" "" way "${way}")
  set(${out} "${way}" PARENT_SCOPE)
endfunction()

# weft_folder(OUT NAME DEFAULT HELP): the cache variable NAME, or what it is by default. The default is not kept in the cache: the
# folder that it comes from may be another one the next time.
function(weft_folder out name default help)
  set(${name} "" CACHE STRING "${help}; by default ${default}")
  set(${out} "${default}" PARENT_SCOPE)
  if(NOT "$CACHE{${name}}" STREQUAL "")
    set(folder "$CACHE{${name}}")
    weft_below_prefix(folder)
    set(${out} "${folder}" PARENT_SCOPE)
  endif()
endfunction()

set(WEFT_PLUGIN_INSTALL_DIR ${CMAKE_INSTALL_LIBDIR}/weft)  # not for packagers: the library looks beside itself
weft_folder(WEFT_CMAKE_DIR WEFT_CMAKE_INSTALL_DIR ${CMAKE_INSTALL_LIBDIR}/cmake "folder of the CMake packages")
weft_folder(WEFT_PKGCONFIG_DIR WEFT_PKGCONFIG_INSTALL_DIR ${CMAKE_INSTALL_LIBDIR}/pkgconfig
  "folder of libfabric.pc; another one where stock libfabric has a file of this name")
set(WEFT_SYSTEMD_UNIT_DIR lib/systemd/system CACHE STRING "folder of systemd's units")
weft_below_prefix(WEFT_SYSTEMD_UNIT_DIR)
set(WEFT_FI_PREFIX "" CACHE STRING
    "folder for bin/ and share/man/ of fi_info, fi_pingpong and fi_strerror, where stock libfabric has programs of these names")

# The programs named fi_*, and the way from them to the library.
set(WEFT_FI_BIN_DIR ${CMAKE_INSTALL_BINDIR})
set(WEFT_FI_MAN_DIR ${CMAKE_INSTALL_MANDIR})
weft_below_prefix(WEFT_FI_PREFIX)
if(WEFT_FI_PREFIX)
  cmake_path(APPEND WEFT_FI_PREFIX bin OUTPUT_VARIABLE WEFT_FI_BIN_DIR)
  cmake_path(APPEND WEFT_FI_PREFIX share/man OUTPUT_VARIABLE WEFT_FI_MAN_DIR)
endif()
weft_way(WEFT_FI_RPATH "$ORIGIN" ${WEFT_FI_BIN_DIR} ${CMAKE_INSTALL_LIBDIR})
weft_way(WEFT_BIN_RPATH "$ORIGIN" ${CMAKE_INSTALL_BINDIR} ${CMAKE_INSTALL_LIBDIR})

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
