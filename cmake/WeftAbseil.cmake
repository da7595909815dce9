# weft_link_abseil(TARGET PART...): links a program with parts of abseil (absl_strings, absl_str_format, ...: the names of its
# pkg-config files). It takes the archives, so that the program loads no more shared libraries than before. Debian's archives are not
# position independent: nothing that ends in a shared object may use them.
find_package(PkgConfig REQUIRED)

function(weft_link_abseil target)
  get_target_property(type ${target} TYPE)
  if(NOT type MATCHES "^(EXECUTABLE|STATIC_LIBRARY)$")
    message(FATAL_ERROR "${target}: abseil is for programs only")
  endif()
  list(JOIN ARGN "_and_" parts)
  pkg_check_modules(ABSEIL_${parts} REQUIRED QUIET ${ARGN})
  set(archives)
  foreach(library IN LISTS ABSEIL_${parts}_STATIC_LIBRARIES)
    if(library MATCHES "^absl_")
      find_library(ABSEIL_ARCHIVE_${library} lib${library}.a HINTS ${ABSEIL_${parts}_LIBRARY_DIRS} REQUIRED)
      mark_as_advanced(ABSEIL_ARCHIVE_${library})
      list(APPEND archives ${ABSEIL_ARCHIVE_${library}})
    endif()
  endforeach()
  list(REMOVE_DUPLICATES archives)
  list(JOIN archives "," archives)
  target_link_libraries(${target} PRIVATE "$<LINK_GROUP:RESCAN,${archives}>")
endfunction()
