# spillway_library(NAME SOURCES ... LINK ...): a static component with the project's include folder.
function(spillway_library name)
  cmake_parse_arguments(ARG "" "" "SOURCES;LINK" ${ARGN})
  add_library(${name} STATIC ${ARG_SOURCES})
  target_include_directories(${name} PUBLIC ${CMAKE_SOURCE_DIR}/include PRIVATE ${CMAKE_SOURCE_DIR})
  target_link_libraries(${name} PUBLIC ${ARG_LINK})
endfunction()

# spillway_test(NAME SOURCES ... LINK ... [LABELS ...] [TIMEOUT seconds] [SHARDS n]): a GoogleTest program, run by ctest
# whole, or in n parts beside each other.
# LABELS: sim (needs the simulator's libraries), stress, gpu. Every test runs from the build folder with
# SPILLWAY_BUILD_DIR set, so that it finds the libraries that it loads.
find_package(GTest REQUIRED)
# GoogleTest's headers, compiled once for all of them.
file(GENERATE OUTPUT ${CMAKE_BINARY_DIR}/test_headers.cpp CONTENT "")
add_executable(spillway_test_headers EXCLUDE_FROM_ALL ${CMAKE_BINARY_DIR}/test_headers.cpp)
target_link_libraries(spillway_test_headers PRIVATE GTest::gmock GTest::gtest_main)
target_precompile_headers(spillway_test_headers PRIVATE <gmock/gmock.h> <gtest/gtest.h>)
function(spillway_test name)
  cmake_parse_arguments(ARG "" "TIMEOUT;SHARDS" "SOURCES;LINK;LABELS" ${ARGN})
  if(NOT ARG_TIMEOUT)
    set(ARG_TIMEOUT 300)  # ends what hangs: no test is meant to be timed, and machines are shared
  endif()
  if(SPILLWAY_SANITIZE)
    math(EXPR ARG_TIMEOUT "3 * ${ARG_TIMEOUT}")
  endif()
  add_executable(${name} ${ARG_SOURCES})
  target_include_directories(${name} PRIVATE ${CMAKE_SOURCE_DIR}/include ${CMAKE_SOURCE_DIR})
  target_link_libraries(${name} PRIVATE ${ARG_LINK} GTest::gmock GTest::gtest_main)
  target_precompile_headers(${name} REUSE_FROM spillway_test_headers)
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
    set_tests_properties(${test} PROPERTIES LABELS "${ARG_LABELS}" TIMEOUT ${ARG_TIMEOUT}
      ENVIRONMENT "SPILLWAY_BUILD_DIR=${CMAKE_BINARY_DIR};GTEST_TOTAL_SHARDS=${ARG_SHARDS};GTEST_SHARD_INDEX=${shard}")
  endforeach()
endfunction()
