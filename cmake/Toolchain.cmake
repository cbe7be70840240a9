# Language level, warnings, the compiler cache, the linker and the sanitizers: the same for every target.
set(CMAKE_CXX_STANDARD 20)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_C_STANDARD 11)
set(CMAKE_POSITION_INDEPENDENT_CODE ON)
set(CMAKE_CXX_VISIBILITY_PRESET hidden)
set(CMAKE_C_VISIBILITY_PRESET hidden)
set(CMAKE_VISIBILITY_INLINES_HIDDEN ON)
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)
if(NOT CMAKE_BUILD_TYPE)
  set(CMAKE_BUILD_TYPE RelWithDebInfo)
endif()
set(SPILLWAY_SANITIZE "" CACHE STRING "empty, 'address' (ASan and UBSan) or 'thread' (TSan)")
# A sanitizer's checks make code large: at the second level it would take twice as long to compile.
if(SPILLWAY_SANITIZE)
  add_compile_definitions(SPILLWAY_CHECK_LOCKS)  # the order of locks: base/lock_order.h
  set(optimize -O1)
else()
  set(optimize -O2)
endif()
set(CMAKE_CXX_FLAGS_RELWITHDEBINFO "${optimize} -g1")
set(CMAKE_C_FLAGS_RELWITHDEBINFO "${optimize} -g1")
set(CMAKE_LIBRARY_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/lib)
set(CMAKE_RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/bin)

# Files of a target are compiled several at a time: their headers are most of the work. Where two files of a target use one
# name for things of their own, spillway_apart() takes one of them out.
set(CMAKE_UNITY_BUILD ON CACHE BOOL "Compile several files of a target as one; OFF: each by itself")
set(CMAKE_UNITY_BUILD_BATCH_SIZE 8 CACHE STRING "How many")

find_program(CCACHE ccache)
if(CCACHE)
  set(CMAKE_C_COMPILER_LAUNCHER ${CMAKE_SOURCE_DIR}/cmake/compile_cached)
  set(CMAKE_CXX_COMPILER_LAUNCHER ${CMAKE_C_COMPILER_LAUNCHER})
endif()
find_program(MOLD mold)
if(MOLD)
  add_link_options(-fuse-ld=mold)
endif()

add_compile_options(-Wall -Wextra -Werror=return-type -fno-omit-frame-pointer)

if(SPILLWAY_SANITIZE STREQUAL "address")
  add_compile_options(-fsanitize=address,undefined -fno-sanitize-recover=undefined)
  add_link_options(-fsanitize=address,undefined)
  # What UBSan says of each check has addresses: relocated, they are a third of a program, and most of its start.
  add_link_options($<$<STREQUAL:$<TARGET_PROPERTY:TYPE>,EXECUTABLE>:-no-pie>)
elseif(SPILLWAY_SANITIZE STREQUAL "thread")
  add_compile_options(-fsanitize=thread)
  add_link_options(-fsanitize=thread)
elseif(SPILLWAY_SANITIZE)
  message(FATAL_ERROR "SPILLWAY_SANITIZE is '${SPILLWAY_SANITIZE}': use 'address', 'thread' or leave it empty")
endif()
