# The LibTorch of torch wheels, without torch's own CMake files (they look for nvcc and a GPU).
#
# SPILLWAY_TORCH_ROOTS: the `torch` folders of installed wheels, each of another minor version; unless it is set, those that
# tools/setup has installed. Shims, kernels and the rehearsal's probe are built for each; the trainer, the examples and the
# benchmarks link the first.
#   spillway_libtorch_2_15 and so on    one of them
#   spillway_libtorch                   the first
#   SPILLWAY_TORCH_VERSIONS             2_15;2_11
set(SPILLWAY_TORCH_ROOTS "" CACHE STRING "The torch folders to build for; the first is the trainer's")
set(torch_roots ${SPILLWAY_TORCH_ROOTS})
if(NOT torch_roots)
  file(REAL_PATH ${SPILLWAY_DEPS}-oldest oldest)
  foreach(environment ${SPILLWAY_ENVIRONMENT} ${oldest})
    file(GLOB installed ${environment}/lib/python3*/site-packages/torch)
    list(APPEND torch_roots ${installed})
  endforeach()
endif()
set(SPILLWAY_TORCH_VERSIONS)

# LibTorch's large headers, compiled once for each: spillway_uses_libtorch(TARGET 2_15).
file(GENERATE OUTPUT ${CMAKE_BINARY_DIR}/libtorch_headers.cpp CONTENT "")

# spillway_libtorch(VERSION ROOT)
function(spillway_libtorch version root)
  set(name spillway_libtorch_${version})
  add_library(${name} INTERFACE)
  target_include_directories(${name} SYSTEM INTERFACE ${root}/include ${root}/include/torch/csrc/api/include)
  string(REGEX MATCH "^([0-9]+)_([0-9]+)$" parts ${version})
  math(EXPR number "${CMAKE_MATCH_1} * 100 + ${CMAKE_MATCH_2}")  # 2_11 is 211, 2_9 is 209
  # As the wheels are built: headers say less about expandable segments without the third.
  target_compile_definitions(${name} INTERFACE USE_C10D_NCCL USE_DISTRIBUTED PYTORCH_C10_DRIVER_API_SUPPORTED
    SPILLWAY_LIBTORCH=${number})
  # By their whole names: CMake then lets what is built find them where they are, and what is installed does without.
  set(libraries torch_cpu torch_cuda c10_cuda c10 torch)
  list(TRANSFORM libraries REPLACE "(.+)" "${root}/lib/lib\\1.so")
  target_link_libraries(${name} INTERFACE spillway_cuda_headers
    -Wl,--no-as-needed ${libraries} -Wl,--as-needed -Wl,--allow-shlib-undefined)
  # LibTorch's errors name files of its own.
  spillway_short_file_names(${name} INTERFACE ${CMAKE_SOURCE_DIR})
  spillway_short_file_names(${name} INTERFACE ${root}/include)  # the last one that fits counts

  set(headers spillway_libtorch_headers_${version})
  add_library(${headers} OBJECT EXCLUDE_FROM_ALL ${CMAKE_BINARY_DIR}/libtorch_headers.cpp)
  target_link_libraries(${headers} PRIVATE ${name})
  target_precompile_headers(${headers} PRIVATE
    <ATen/ATen.h> <c10/core/StreamGuard.h> <torch/csrc/autograd/autograd.h> <torch/csrc/autograd/custom_function.h>
    <torch/csrc/autograd/function_hook.h> <torch/csrc/autograd/variable.h> <torch/library.h>)
endfunction()

# spillway_uses_libtorch(TARGET VERSION): with its large headers compiled before.
function(spillway_uses_libtorch target version)
  target_link_libraries(${target} PRIVATE spillway_libtorch_${version})
  target_precompile_headers(${target} REUSE_FROM spillway_libtorch_headers_${version})
endfunction()

set(given_roots ${torch_roots})
set(torch_roots)  # one for each of the versions
if(NOT SPILLWAY_SANITIZE STREQUAL "thread")
  foreach(root IN LISTS given_roots)
    set(header ${root}/include/torch/headeronly/version.h)
    if(NOT EXISTS ${header})  # before 2.10
      set(header ${root}/include/torch/csrc/api/include/torch/version.h)
    endif()
    file(STRINGS ${header} parts REGEX "define TORCH_VERSION_(MAJOR|MINOR) ")
    string(REGEX REPLACE "[^0-9]+([0-9]+)[^0-9]+([0-9]+).*" "\\1_\\2" version "${parts}")
    if(version IN_LIST SPILLWAY_TORCH_VERSIONS)
      continue()
    endif()
    list(APPEND SPILLWAY_TORCH_VERSIONS ${version})
    list(APPEND torch_roots ${root})
    spillway_libtorch(${version} ${root})
  endforeach()
endif()
if(SPILLWAY_TORCH_VERSIONS)
  set(SPILLWAY_HAS_LIBTORCH ON)
  list(GET torch_roots 0 SPILLWAY_TORCH_ROOT)
  list(GET SPILLWAY_TORCH_VERSIONS 0 SPILLWAY_TORCH_VERSION)
  add_library(spillway_libtorch ALIAS spillway_libtorch_${SPILLWAY_TORCH_VERSION})
else()
  set(SPILLWAY_HAS_LIBTORCH OFF)
endif()
