# Tests and their labels. Every test has exactly one of these labels (tools/check looks).
#   unit         one part of weft by itself, and the commands of tools/
#   conformance  what a stack promises, over the C API (also with hooks, and the tests of one plugin that need a whole stack)
#   simulation   protocols in simulated time, from seeds
#   client       real programs: Open MPI, Debian's tools
#   interop      against peers on stock libfabric
#   host         several hosts, as network namespaces
#   fuzz         the fuzz targets over their corpora
#   vm           verbs on software RDMA devices, in a virtual machine
# Besides, a test of one stack has the label stack.NAME (stack.tcp+ofi_rxm), and those of abi and hooks have these labels.
# These say where ./test runs it (tests/tree/presets shows the result):
#   long         ./test --all only: one more variant of what other tests find, or minutes of simulation
#   threads      under ThreadSanitizer as well
#   script       not under sanitizers, except by ./test --all: it starts one program after the other

# weft_limit(SECONDS TESTS names...): when these tests count as hanging, but ten minutes at least: other machines are slower, and under
# sanitizers everything takes longer. There the longest start first, so that none runs alone at the end.
function(weft_limit seconds)
  cmake_parse_arguments(L "" "" "TESTS" ${ARGN})
  if(WEFT_SANITIZE)
    math(EXPR seconds "3 * ${seconds}")
    set_tests_properties(${L_TESTS} PROPERTIES COST ${seconds})
  endif()
  if(seconds LESS 600)
    set(seconds 600)
  endif()
  set_tests_properties(${L_TESTS} PROPERTIES TIMEOUT ${seconds})
endfunction()

# weft_label(LABELS... TESTS names...): labels for tests of add_test(), or more of them.
function(weft_label)
  cmake_parse_arguments(L "" "" "TESTS" ${ARGN})
  foreach(test IN LISTS L_TESTS)
    set_property(TEST ${test} APPEND PROPERTY LABELS ${L_UNPARSED_ARGUMENTS})
  endforeach()
endfunction()

# weft_note_for_support(STACK TYPE TEST PROGRAM [NAME=VALUE...]): docs/support.md shows what the test finds (tests/conformance/support).
# STACK has + between its providers, TYPE is msg, rdm or dgram; the variables are those of the test that say what the stack has.
function(weft_note_for_support stack type test program)
  set(results ${CMAKE_BINARY_DIR}/conformance/${test}.json)
  set_property(TEST ${test} APPEND PROPERTY ENVIRONMENT "GTEST_OUTPUT=json:${results}")
  set_property(GLOBAL APPEND PROPERTY WEFT_SUPPORT_TESTS ${test})
  list(JOIN ARGN " " environment)
  set_property(GLOBAL APPEND_STRING PROPERTY WEFT_SUPPORT_LINES
               "${stack} ${type} ${test} $<TARGET_FILE:${program}> ${results} ${environment}\n")
endfunction()

# weft_compile_in_batches(): the folder's sources, and those of the folders below, are compiled many at a time, which halves the
# time: most of it goes into the same large headers and templates. So names in the anonymous namespaces of a target differ.
macro(weft_compile_in_batches)
  set(CMAKE_UNITY_BUILD ON)
  set(CMAKE_UNITY_BUILD_BATCH_SIZE 24)
  if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
    add_compile_options($<$<COMPILE_LANGUAGE:CXX>:-Wno-subobject-linkage>)  # takes the files of a batch for headers
  endif()
endmacro()

# weft_batch_but(TARGET SOURCES...): the target's sources are compiled in batches, but for these, which messages go through: they are
# compiled by themselves, as what is measured. (With WEFT_BATCHES, where nothing is measured, all are in batches.)
function(weft_batch_but target)
  set_target_properties(${target} PROPERTIES UNITY_BUILD ON UNITY_BUILD_BATCH_SIZE 24)
  if(NOT WEFT_BATCHES)
    set_source_files_properties(${ARGN} PROPERTIES SKIP_UNITY_BUILD_INCLUSION ON)
  endif()
  if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
    target_compile_options(${target} PRIVATE -Wno-subobject-linkage)
  endif()
endfunction()

# weft_targets(OUT): the targets of all folders. For the end of the top CMakeLists.txt.
function(weft_targets out)
  set(folders ${PROJECT_SOURCE_DIR})
  set(all)
  while(folders)
    list(POP_FRONT folders folder)
    get_property(inner DIRECTORY ${folder} PROPERTY SUBDIRECTORIES)
    list(APPEND folders ${inner})
    get_property(targets DIRECTORY ${folder} PROPERTY BUILDSYSTEM_TARGETS)
    list(APPEND all ${targets})
  endwhile()
  set(${out} "${all}" PARENT_SCOPE)
endfunction()

# The batches of all targets. CMake itself writes the absolute paths of the sources into them, so no compiler cache would find a batch
# again in another clone. These have the paths of the tree. Called once, at the end.
function(weft_finish_batches)
  weft_targets(targets)
  foreach(target IN LISTS targets)
    get_target_property(unity ${target} UNITY_BUILD)
    get_target_property(type ${target} TYPE)
    if(NOT unity OR NOT type MATCHES "EXECUTABLE|LIBRARY" OR type MATCHES "INTERFACE")
      continue()
    endif()
    get_target_property(folder ${target} SOURCE_DIR)
    get_target_property(sources ${target} SOURCES)
    get_target_property(size ${target} UNITY_BUILD_BATCH_SIZE)
    set(alone)
    set(together)
    foreach(source IN LISTS sources)
      cmake_path(ABSOLUTE_PATH source BASE_DIRECTORY ${folder} NORMALIZE OUTPUT_VARIABLE path)
      get_source_file_property(skip ${path} TARGET_DIRECTORY ${target} SKIP_UNITY_BUILD_INCLUSION)
      get_source_file_property(options ${path} TARGET_DIRECTORY ${target} COMPILE_OPTIONS)
      cmake_path(IS_PREFIX PROJECT_SOURCE_DIR ${path} inside)
      if(inside AND path MATCHES "[.]cc$" AND NOT skip AND NOT options)
        cmake_path(RELATIVE_PATH path BASE_DIRECTORY ${PROJECT_SOURCE_DIR})
        list(APPEND together ${path})
      else()
        list(APPEND alone ${source})
      endif()
    endforeach()
    set_target_properties(${target} PROPERTIES UNITY_BUILD OFF)
    list(LENGTH together count)
    if(count LESS 2)
      continue()
    endif()
    # As many in each.
    math(EXPR batches "(${count} + ${size} - 1) / ${size}")
    math(EXPR size "(${count} + ${batches} - 1) / ${batches}")
    get_target_property(binary ${target} BINARY_DIR)
    set(number 0)
    while(together)
      list(SUBLIST together 0 ${size} batch)
      list(REMOVE_ITEM together ${batch})
      list(TRANSFORM batch REPLACE "(.+)" "#include \"\\1\"\n")
      list(JOIN batch "" WEFT_BATCH)
      set(file ${binary}/batches/${target}/batch_${number}.cc)
      file(CONFIGURE OUTPUT ${file} CONTENT "@WEFT_BATCH@" @ONLY)
      list(APPEND alone ${file})
      math(EXPR number "${number} + 1")
    endwhile()
    set_target_properties(${target} PROPERTIES SOURCES "${alone}")
    target_include_directories(${target} PRIVATE ${PROJECT_SOURCE_DIR})
  endforeach()
endfunction()

# weft_precompile_test(TARGET [OPTIMISED]): how a test program is compiled. GoogleTest and the standard headers that most tests
# include are compiled once (tests/precompiled.h), for all of them. Tests are not optimised: that halves the time to compile them,
# and what they test is optimised as ever. OPTIMISED is for those that do most of their work in the test itself, and for protocols
# that are headers. UBSan watches all of these; of other tests it watches the sources that are no tests.
function(weft_precompile_test target)
  get_target_property(plain ${target} WEFT_PLAIN)
  set(base weft-test-precompiled)
  set(options -O0)
  if(plain)
    set(base weft-test-precompiled-plain)
  elseif("OPTIMISED" IN_LIST ARGN)
    set(base weft-test-precompiled-optimised)
    set(options)
  elseif(WEFT_SANITIZE MATCHES undefined)
    list(APPEND options -fno-sanitize=undefined)
  endif()
  if(NOT TARGET ${base})
    add_executable(${base} EXCLUDE_FROM_ALL ${PROJECT_SOURCE_DIR}/tests/precompiled.cc)
    target_link_libraries(${base} PRIVATE GTest::gmock)
    target_compile_options(${base} PRIVATE ${options})
    # As one includes it from the tree, so that the compiler cache knows it in each clone.
    target_include_directories(${base} PRIVATE ${PROJECT_SOURCE_DIR})
    target_precompile_headers(${base} PRIVATE "$<$<COMPILE_LANGUAGE:CXX>:<tests/precompiled.h$<ANGLE-R>>")
    set_target_properties(${base} PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/tests UNITY_BUILD OFF WEFT_PLAIN "${plain}")
  endif()
  target_compile_options(${target} PRIVATE ${options})
  get_target_property(sources ${target} SOURCES)
  if("-fno-sanitize=undefined" IN_LIST options)
    foreach(source IN LISTS sources)
      cmake_path(ABSOLUTE_PATH source BASE_DIRECTORY ${CMAKE_CURRENT_SOURCE_DIR} NORMALIZE OUTPUT_VARIABLE path)
      if(NOT path MATCHES "_test[.]cc$|/test_[^/]*$|${PROJECT_SOURCE_DIR}/tests/|[.]c$")
        set_source_files_properties(${source} PROPERTIES COMPILE_OPTIONS -fsanitize=undefined SKIP_PRECOMPILE_HEADERS ON)
      endif()
    endforeach()
  endif()
  if(NOT sources MATCHES "[.]c(;|$)")  # CMake then asks for a form of them in C as well
    target_precompile_headers(${target} REUSE_FROM ${base})
  endif()
endfunction()

# weft_add_test(NAME SOURCES... LIBS... [LABEL unit|conformance|simulation] [TIMEOUT seconds] [LONG] [THREADS] [SCRIPT] [LONG_CASES cases...]): a GoogleTest
# program that ctest runs as NAME. The label is conformance for what stands on weft_conformance, else unit. A simulation does most of its
# work in the test itself, and in protocols that are headers: it is optimised. LONG, THREADS and SCRIPT give the labels above. LONG_CASES are a test of their own, NAME.long.
#
# EACH PREFIX: ctest runs the suites of each source by themselves, as PREFIXfoo_test for foo_test.cc. So files that are compiled
# together, which takes less time, are still tests of their own. NAME.rest runs what no line TEST(...) of a source names.
#
# NO_TEST: only the program; its tests are made with add_test() or weft_add_suite_test().
function(weft_add_test name)
  cmake_parse_arguments(T "LONG;THREADS;SCRIPT;NO_TEST" "TIMEOUT;LABEL;EACH" "SOURCES;LIBS;LONG_CASES" ${ARGN})
  if(NOT WEFT_TESTS)
    return()
  endif()
  if(NOT T_TIMEOUT)
    set(T_TIMEOUT 120)
  endif()
  if(NOT T_LABEL)
    set(T_LABEL unit)
    if(weft_conformance IN_LIST T_LIBS)
      set(T_LABEL conformance)
    endif()
  endif()
  add_executable(${name} ${T_SOURCES})
  target_include_directories(${name} PRIVATE ${PROJECT_SOURCE_DIR})
  target_link_libraries(${name} PRIVATE ${T_LIBS} GTest::gmock GTest::gtest_main)
  set_target_properties(${name} PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/tests
    UNITY_BUILD ON UNITY_BUILD_BATCH_SIZE 12)
  set(code ${T_LIBS})  # what is instrumented where this test is built
  list(REMOVE_ITEM code weft_conformance weft_test_hmem weft_abi weft::abi nlohmann_json::nlohmann_json PkgConfig::HTTPLIB ${CMAKE_DL_LIBS})
  if(weft_conformance IN_LIST T_LIBS AND NOT code)
    set_target_properties(${name} PROPERTIES WEFT_PLAIN ON)
  endif()
  if(T_LABEL STREQUAL simulation)
    weft_precompile_test(${name} OPTIMISED)
  else()
    weft_precompile_test(${name})
  endif()
  if(T_NO_TEST)
    return()
  endif()
  set(tests)
  if(T_EACH)
    set(all)
    foreach(source IN LISTS T_SOURCES)
      cmake_path(GET source STEM stem)
      weft_suites_of(${source} suites)
      add_test(NAME ${T_EACH}${stem} COMMAND ${name} --gtest_filter=${suites})
      list(APPEND tests ${T_EACH}${stem})
      list(APPEND all ${suites})
    endforeach()
    list(JOIN all ":" all)
    add_test(NAME ${name}.rest COMMAND ${name} --gtest_filter=-${all})
    list(APPEND tests ${name}.rest)
  elseif(T_LONG_CASES)
    list(JOIN T_LONG_CASES ":" long_cases)
    add_test(NAME ${name} COMMAND ${name} --gtest_filter=-${long_cases})
    add_test(NAME ${name}.long COMMAND ${name} --gtest_filter=${long_cases})
    set(tests ${name} ${name}.long)
  else()
    add_test(NAME ${name} COMMAND ${name})
    set(tests ${name})
  endif()
  weft_limit(${T_TIMEOUT} TESTS ${tests})
  set(labels ${T_LABEL})
  foreach(label LONG THREADS SCRIPT)
    if(T_${label})
      string(TOLOWER ${label} label)
      list(APPEND labels ${label})
    endif()
  endforeach()
  set_tests_properties(${tests} PROPERTIES LABELS "${labels}")
  if(T_LONG_CASES)
    weft_label(long TESTS ${name}.long)
  endif()
endfunction()

# weft_suites_of(SOURCE OUT): a --gtest_filter for the suites of a file, plain, with parameters and with types.
function(weft_suites_of source out)
  file(STRINGS ${source} lines REGEX "^(TYPED_)?TEST(_[FP])?\\(")
  set(filter)
  foreach(line IN LISTS lines)
    string(REGEX REPLACE "^[A-Z_]*\\(([A-Za-z0-9_]+),.*" "\\1" suite "${line}")
    if(NOT suite MATCHES "^[A-Za-z0-9_]+$")
      message(FATAL_ERROR "${source}: the suite must stand behind the bracket: ${line}")
    endif()
    list(APPEND filter "${suite}.*" "*/${suite}.*" "${suite}/*" "*/${suite}/*")
  endforeach()
  if(NOT filter)
    message(FATAL_ERROR "${source} has no test")
  endif()
  list(REMOVE_DUPLICATES filter)
  list(JOIN filter ":" filter)
  set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${source})
  set(${out} "${filter}" PARENT_SCOPE)
endfunction()

# weft_suite(SUITE PROGRAM FILTER): the program of tests/conformance that has the suites of SUITE_test.cc (rdm_msg_test.cc for rdm_msg),
# and a --gtest_filter for them.
function(weft_suite suite program filter)
  set(${program} conformance_msg PARENT_SCOPE)
  if(suite MATCHES "^(rdm|dgram)_")
    set(${program} conformance_${CMAKE_MATCH_1} PARENT_SCOPE)
  endif()
  get_property(suites GLOBAL PROPERTY WEFT_SUITES_${suite})
  if(NOT suites)
    weft_suites_of(${PROJECT_SOURCE_DIR}/tests/conformance/${suite}_test.cc suites)
    set_property(GLOBAL PROPERTY WEFT_SUITES_${suite} "${suites}")
  endif()
  set(${filter} "${suites}" PARENT_SCOPE)
endfunction()

# weft_add_suite_test(NAME TEST SUITE SUITE): ctest runs the suites of tests/conformance/SUITE_test.cc as TEST. Its stack is that of
# WEFT_TEST_STACK in its environment.
function(weft_add_suite_test)
  cmake_parse_arguments(S "" "NAME;SUITE" "" ${ARGN})
  weft_suite(${S_SUITE} program filter)
  add_test(NAME ${S_NAME} COMMAND ${program} --gtest_filter=${filter})
endfunction()

# weft_add_fuzz(NAME SOURCES... LIBS... CORPUS DIR): a fuzz target. With WEFT_FUZZ it is a libFuzzer program; without, the same
# LLVMFuzzerTestOneInput runs once over every file of the corpus, as an ordinary test. NAME.minute runs the libFuzzer program for a
# minute; what it finds beyond the corpus stays in the build folder.
function(weft_add_fuzz name)
  cmake_parse_arguments(F "" "CORPUS" "SOURCES;LIBS" ${ARGN})
  if(NOT WEFT_TESTS)
    return()
  endif()
  if(WEFT_FUZZ)
    add_executable(${name} ${F_SOURCES})
    target_link_options(${name} PRIVATE -fsanitize=fuzzer)
    set_target_properties(${name} PROPERTIES UNITY_BUILD OFF)
  else()
    add_executable(${name} ${F_SOURCES})
    target_compile_options(${name} PRIVATE -O0)  # a corpus is short
    target_link_libraries(${name} PRIVATE weft_fuzz_replay)
    set_target_properties(${name} PROPERTIES UNITY_BUILD ON UNITY_BUILD_BATCH_SIZE 12)
  endif()
  target_include_directories(${name} PRIVATE ${PROJECT_SOURCE_DIR})
  target_link_libraries(${name} PRIVATE ${F_LIBS})
  set_target_properties(${name} PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/fuzz)
  if(WEFT_FUZZ)
    add_test(NAME ${name} COMMAND ${name} -runs=0 ${F_CORPUS})
    set(found ${CMAKE_BINARY_DIR}/fuzz/found/${name})
    file(MAKE_DIRECTORY ${found})
    add_test(NAME ${name}.minute COMMAND ${name} -max_total_time=60 -timeout=10 -rss_limit_mb=2048 -print_final_stats=1 -verbosity=0
      -artifact_prefix=${CMAKE_BINARY_DIR}/fuzz/ ${found} ${F_CORPUS})
    set_tests_properties(${name}.minute PROPERTIES TIMEOUT 900 LABELS "fuzz;long")
  else()
    add_test(NAME ${name} COMMAND ${name} ${F_CORPUS})
  endif()
  set_tests_properties(${name} PROPERTIES TIMEOUT 600 LABELS fuzz)
  set_property(GLOBAL APPEND PROPERTY WEFT_FUZZ_TARGETS ${name})
endfunction()

# The target `fuzz`, which builds all fuzz targets.
function(weft_finish_fuzz)
  get_property(targets GLOBAL PROPERTY WEFT_FUZZ_TARGETS)
  if(WEFT_FUZZ AND targets)
    add_custom_target(fuzz DEPENDS ${targets})
  endif()
endfunction()

# The target `programs`: the library, the plugins and the tools, without the tests and bench/. Called once, at the end.
function(weft_finish_programs)
  weft_targets(targets)
  set(programs)
  foreach(target IN LISTS targets)
    get_target_property(folder ${target} SOURCE_DIR)
    if(folder STREQUAL "${PROJECT_SOURCE_DIR}/bench")
      continue()
    endif()
    get_target_property(type ${target} TYPE)
    get_target_property(output ${target} RUNTIME_OUTPUT_DIRECTORY)
    get_target_property(excluded ${target} EXCLUDE_FROM_ALL)
    if(type MATCHES "^(EXECUTABLE|MODULE_LIBRARY|SHARED_LIBRARY)$" AND NOT output MATCHES "/(tests|fuzz)$" AND NOT excluded)
      list(APPEND programs ${target})
    endif()
  endforeach()
  add_custom_target(programs DEPENDS ${programs})
endfunction()

# weft_own_nics(TEST): a conformance test over cxi has NICs of its own. Tests that run at the same time would share those of a folder:
# one would get the PID that another one has just given back, and messages for it.
function(weft_own_nics test)
  string(REGEX REPLACE "conformance_rdm_|_test[.]cxi$" "" name ${test})  # short: sockets lie there
  set(folder ${CMAKE_BINARY_DIR}/cxi/run-${name})
  file(MAKE_DIRECTORY ${folder})
  file(CHMOD ${folder} PERMISSIONS OWNER_READ OWNER_WRITE OWNER_EXECUTE)
  set_property(TEST ${test} APPEND PROPERTY ENVIRONMENT WEFT_RUNTIME_DIR=${folder})
endfunction()
