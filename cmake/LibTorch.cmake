# spillway_libtorch: the LibTorch of the torch wheel, without torch's own CMake files (they look for nvcc and a GPU).
file(GLOB SPILLWAY_TORCH_ROOT ${SPILLWAY_DEPS}/lib/python3*/site-packages/torch)
if(SPILLWAY_TORCH_ROOT AND NOT SPILLWAY_SANITIZE STREQUAL "thread")
  set(SPILLWAY_HAS_LIBTORCH ON)
  add_library(spillway_libtorch INTERFACE)
  target_include_directories(spillway_libtorch SYSTEM INTERFACE
    ${SPILLWAY_TORCH_ROOT}/include ${SPILLWAY_TORCH_ROOT}/include/torch/csrc/api/include)
  target_compile_definitions(spillway_libtorch INTERFACE USE_C10D_NCCL USE_DISTRIBUTED)
  target_link_directories(spillway_libtorch INTERFACE ${SPILLWAY_TORCH_ROOT}/lib)
  target_link_libraries(spillway_libtorch INTERFACE spillway_cuda_headers
    -Wl,--no-as-needed torch_cpu torch_cuda c10_cuda c10 torch -Wl,--as-needed
    -Wl,--allow-shlib-undefined)
  target_link_options(spillway_libtorch INTERFACE -Wl,-rpath,${SPILLWAY_TORCH_ROOT}/lib)
else()
  set(SPILLWAY_HAS_LIBTORCH OFF)
endif()
