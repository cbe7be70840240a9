# spillway_library(NAME SOURCES ... LINK ...): a static component with the project's include folder.
function(spillway_library name)
  cmake_parse_arguments(ARG "" "" "SOURCES;LINK" ${ARGN})
  add_library(${name} STATIC ${ARG_SOURCES})
  target_include_directories(${name} PUBLIC ${CMAKE_SOURCE_DIR}/include ${CMAKE_SOURCE_DIR})
  target_link_libraries(${name} PUBLIC ${ARG_LINK})
endfunction()

# spillway_apart(FILE...): each is compiled by itself, because another file of its target has a name that it has too.
function(spillway_apart)
  set_source_files_properties(${ARGN} PROPERTIES SKIP_UNITY_BUILD_INCLUSION ON)
endfunction()

# spillway_units_by_folder(TARGET): the files of a folder are compiled together, not the next ones of the target's list: in
# one folder few files have a name of another.
function(spillway_units_by_folder target)
  get_target_property(sources ${target} SOURCES)
  foreach(source IN LISTS sources)
    get_filename_component(folder ${source} DIRECTORY)
    string(MAKE_C_IDENTIFIER ${folder} unit)
    set_source_files_properties(${source} PROPERTIES UNITY_GROUP ${unit})
  endforeach()
  set_target_properties(${target} PROPERTIES UNITY_BUILD_MODE GROUP)
endfunction()

# spillway_compiles_fast(TARGET): under a sanitizer it is not optimised. For code whose speed matters to no test and whose
# headers (arguments, JSON, TOML) make half of a sanitizer's build.
function(spillway_compiles_fast target)
  if(SPILLWAY_SANITIZE)
    target_compile_options(${target} PRIVATE -O0)
  endif()
endfunction()

# spillway_loads(TARGET LIBRARY...): what the target's program loads by path when it runs is built with it. Libraries that
# this configuration has not (LibTorch's under TSan) are left out.
function(spillway_loads target)
  foreach(library IN LISTS ARGN)
    if(TARGET ${library})
      add_dependencies(${target} ${library})
    endif()
  endforeach()
endfunction()

# spillway_short_file_names(NAME SCOPE FOLDER): what __FILE__ says starts below FOLDER, so that what is installed does not
# name the folders of this machine. A compiler cache may pass paths that start at the build folder.
function(spillway_short_file_names name scope folder)
  file(RELATIVE_PATH from_build ${CMAKE_BINARY_DIR} ${folder})
  foreach(start ${folder} ${from_build})
    string(REGEX REPLACE "/$" "" start ${start})
    target_compile_options(${name} ${scope} -fmacro-prefix-map=${start}/=)
  endforeach()
endfunction()

# spillway_test(NAME SOURCES ... LINK ... [LABELS ...] [TIMEOUT seconds] [SHARDS n] [COST n] [ONE_THREAD] [LIBTORCH]): a
# GoogleTest program, run by ctest whole, or in n parts beside each other; those of a higher cost start first, so that no
# core waits for them at the end. One of ONE_THREAD ends if it starts a thread, and TSan, which finds races alone, leaves it
# out. One of LIBTORCH includes its headers, and is not optimised. LABELS: sim (needs the simulator's libraries), stress,
# gpu. Every test runs from the build folder with SPILLWAY_BUILD_DIR set, so that it finds the libraries that it loads.
find_package(GTest REQUIRED)
# GoogleTest's headers, compiled once for all of them.
file(GENERATE OUTPUT ${CMAKE_BINARY_DIR}/test_headers.cpp CONTENT "")
add_executable(spillway_test_headers EXCLUDE_FROM_ALL ${CMAKE_BINARY_DIR}/test_headers.cpp)
target_link_libraries(spillway_test_headers PRIVATE GTest::gmock GTest::gtest_main)
# With ASan and UBSan a test's own code compiles in half the time if it is not optimised.
set(SPILLWAY_TEST_OPTIONS $<$<STREQUAL:${SPILLWAY_SANITIZE},address>:-O0>)
target_compile_options(spillway_test_headers PRIVATE ${SPILLWAY_TEST_OPTIONS})
target_precompile_headers(spillway_test_headers PRIVATE <gmock/gmock.h> <gtest/gtest.h>)
function(spillway_test name)
  cmake_parse_arguments(ARG "ONE_THREAD;LIBTORCH" "TIMEOUT;SHARDS;COST" "SOURCES;LINK;LABELS" ${ARGN})
  if(NOT ARG_TIMEOUT)
    set(ARG_TIMEOUT 300)  # ends what hangs: no test is meant to be timed, and machines are shared
  endif()
  if(SPILLWAY_SANITIZE)
    math(EXPR ARG_TIMEOUT "3 * ${ARG_TIMEOUT}")
  endif()
  add_executable(${name} ${ARG_SOURCES})
  target_include_directories(${name} PRIVATE ${CMAKE_SOURCE_DIR}/include ${CMAKE_SOURCE_DIR})
  target_link_libraries(${name} PRIVATE ${ARG_LINK} GTest::gmock GTest::gtest_main)
  if(ARG_LIBTORCH)
    target_compile_options(${name} PRIVATE -O0)
    target_precompile_headers(${name} REUSE_FROM spillway_libtorch_test_headers)
  else()
    target_compile_options(${name} PRIVATE ${SPILLWAY_TEST_OPTIONS})
    target_precompile_headers(${name} REUSE_FROM spillway_test_headers)
  endif()
  # GoogleTest's macros name the file, and the compiler cache keys on what they say.
  spillway_short_file_names(${name} PRIVATE ${CMAKE_SOURCE_DIR})
  if(ARG_ONE_THREAD AND SPILLWAY_SANITIZE STREQUAL "thread")
    set_target_properties(${name} PROPERTIES EXCLUDE_FROM_ALL ON)
    return()
  elseif(ARG_ONE_THREAD AND NOT SPILLWAY_SANITIZE)
    target_sources(${name} PRIVATE ${CMAKE_SOURCE_DIR}/tests/one_thread.cpp)
  endif()
  if(NOT ARG_COST)
    set(ARG_COST 0)
  endif()
  if(NOT ARG_SHARDS)
    set(ARG_SHARDS 1)
  endif()
  math(EXPR last "${ARG_SHARDS} - 1")
  foreach(shard RANGE ${last})
    set(test ${name})
    if(ARG_SHARDS GREATER 1)
      string(APPEND test "_${shard}")
    endif()
    add_test(NAME ${test} COMMAND ${name} WORKING_DIRECTORY ${CMAKE_BINARY_DIR})
    set_tests_properties(${test} PROPERTIES LABELS "${ARG_LABELS}" TIMEOUT ${ARG_TIMEOUT} COST ${ARG_COST}
      ENVIRONMENT "SPILLWAY_BUILD_DIR=${CMAKE_BINARY_DIR};GTEST_TOTAL_SHARDS=${ARG_SHARDS};GTEST_SHARD_INDEX=${shard}")
  endforeach()
endfunction()
