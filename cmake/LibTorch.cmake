# spillway_libtorch: the LibTorch of the torch wheel, without torch's own CMake files (they look for nvcc and a GPU).
file(GLOB SPILLWAY_TORCH_ROOT ${SPILLWAY_DEPS}/lib/python3*/site-packages/torch)
if(SPILLWAY_TORCH_ROOT AND NOT SPILLWAY_SANITIZE STREQUAL "thread")
  set(SPILLWAY_HAS_LIBTORCH ON)
  set(SPILLWAY_TORCH_LIBRARIES torch_cpu torch_cuda c10_cuda c10 torch)
  add_library(spillway_libtorch INTERFACE)
  target_include_directories(spillway_libtorch SYSTEM INTERFACE
    ${SPILLWAY_TORCH_ROOT}/include ${SPILLWAY_TORCH_ROOT}/include/torch/csrc/api/include)
  target_compile_definitions(spillway_libtorch INTERFACE USE_C10D_NCCL USE_DISTRIBUTED)
  # By their whole names: CMake then lets what is built find them where they are, and what is installed does without.
  list(TRANSFORM SPILLWAY_TORCH_LIBRARIES REPLACE "(.+)" "${SPILLWAY_TORCH_ROOT}/lib/lib\\1.so")
  target_link_libraries(spillway_libtorch INTERFACE spillway_cuda_headers
    -Wl,--no-as-needed ${SPILLWAY_TORCH_LIBRARIES} -Wl,--as-needed -Wl,--allow-shlib-undefined)
  # LibTorch's errors name files of its own.
  spillway_short_file_names(spillway_libtorch INTERFACE ${CMAKE_SOURCE_DIR})
  spillway_short_file_names(spillway_libtorch INTERFACE ${SPILLWAY_TORCH_ROOT}/include)  # the last one that fits counts

  # LibTorch's large headers, compiled once: target_precompile_headers(NAME REUSE_FROM spillway_libtorch_headers).
  file(GENERATE OUTPUT ${CMAKE_BINARY_DIR}/libtorch_headers.cpp CONTENT "")
  add_library(spillway_libtorch_headers OBJECT EXCLUDE_FROM_ALL ${CMAKE_BINARY_DIR}/libtorch_headers.cpp)
  target_link_libraries(spillway_libtorch_headers PRIVATE spillway_libtorch)
  target_precompile_headers(spillway_libtorch_headers PRIVATE
    <ATen/ATen.h> <c10/core/StreamGuard.h> <torch/csrc/autograd/autograd.h> <torch/csrc/autograd/custom_function.h>
    <torch/csrc/autograd/function_hook.h> <torch/csrc/autograd/variable.h> <torch/library.h>)
else()
  set(SPILLWAY_HAS_LIBTORCH OFF)
endif()
