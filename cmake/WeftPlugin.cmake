# weft_add_plugin(NAME SOURCES a.cc ... [LIBS ...] [OUTPUT_DIRECTORY DIR] [COMPONENT NAME] [NO_INSTALL])
# A plugin file NAME.so that exports weft_plugin_query and nothing else, has no undefined symbols, and whose manifest
# plugins.d/NAME.yaml is generated from its descriptor. Works in weft's own tree and with the installed SDK. Without NO_INSTALL both
# files are installed into WEFT_PLUGIN_INSTALL_DIR, which is lib/weft (or as weft itself was installed) unless it is set, with the
# component plugin-NAME unless there is another one.
set(WEFT_PLUGIN_MAP ${CMAKE_CURRENT_LIST_DIR}/weft_plugin.map)

function(weft_add_plugin name)
  cmake_parse_arguments(P "NO_INSTALL" "OUTPUT_DIRECTORY;COMPONENT" "SOURCES;LIBS" ${ARGN})
  if(NOT P_OUTPUT_DIRECTORY)
    set(P_OUTPUT_DIRECTORY ${WEFT_PLUGIN_OUTPUT_DIRECTORY})
  endif()
  if(NOT P_OUTPUT_DIRECTORY)
    set(P_OUTPUT_DIRECTORY ${CMAKE_CURRENT_BINARY_DIR})
  endif()
  set(target weft-plugin-${name})
  add_library(${target} MODULE ${P_SOURCES})
  set_target_properties(${target} PROPERTIES
    OUTPUT_NAME ${name} PREFIX "" SUFFIX ".so"
    LIBRARY_OUTPUT_DIRECTORY ${P_OUTPUT_DIRECTORY}
    C_VISIBILITY_PRESET hidden CXX_VISIBILITY_PRESET hidden VISIBILITY_INLINES_HIDDEN ON
    LINK_DEPENDS ${WEFT_PLUGIN_MAP})
  target_link_libraries(${target} PRIVATE weft::sdk ${P_LIBS})
  target_link_options(${target} PRIVATE -Wl,--version-script=${WEFT_PLUGIN_MAP} -Wl,--exclude-libs,ALL)
  if(NOT WEFT_SANITIZE)  # sanitizer runtimes are resolved from the executable
    target_link_options(${target} PRIVATE -Wl,-z,defs)
  endif()
  add_custom_command(TARGET ${target} POST_BUILD
    COMMAND ${CMAKE_COMMAND} -E make_directory ${P_OUTPUT_DIRECTORY}/plugins.d
    COMMAND $<TARGET_FILE:weft::probe> --manifest $<TARGET_FILE:${target}> --output ${P_OUTPUT_DIRECTORY}/plugins.d/${name}.yaml
    COMMENT "Generating plugins.d/${name}.yaml" VERBATIM)
  if(TARGET weft-probe)
    add_dependencies(${target} weft-probe)
  endif()
  if(P_OUTPUT_DIRECTORY STREQUAL WEFT_PLUGIN_OUTPUT_DIRECTORY)
    set_property(GLOBAL APPEND PROPERTY WEFT_PLUGINS ${target})  # for plugins.idx, see core/probe
  endif()
  if(NOT P_NO_INSTALL)
    if(NOT P_COMPONENT)
      set(P_COMPONENT plugin-${name})
    endif()
    install(TARGETS ${target} LIBRARY DESTINATION ${WEFT_PLUGIN_INSTALL_DIR} COMPONENT ${P_COMPONENT})
    install(FILES ${P_OUTPUT_DIRECTORY}/plugins.d/${name}.yaml DESTINATION ${WEFT_PLUGIN_INSTALL_DIR}/plugins.d COMPONENT ${P_COMPONENT})
  endif()
endfunction()
