# spillway_cuda_headers: the headers of the CUDA that the PyTorch of tools/setup brings.
# Nothing links a CUDA library: the driver is resolved at run time.
set(SPILLWAY_DEPS ${CMAKE_SOURCE_DIR}/.deps CACHE PATH "The environment that tools/setup made")
# Not the link: in another environment the headers are others, whatever their times say.
file(REAL_PATH ${SPILLWAY_DEPS} SPILLWAY_ENVIRONMENT)
file(GLOB SPILLWAY_CUDA_ROOT ${SPILLWAY_ENVIRONMENT}/lib/python3*/site-packages/nvidia/cu13)
if(NOT EXISTS ${SPILLWAY_CUDA_ROOT}/include/cuda.h)
  message(FATAL_ERROR "${SPILLWAY_DEPS} has no CUDA headers: run tools/setup first")
endif()
add_library(spillway_cuda_headers INTERFACE)
target_include_directories(spillway_cuda_headers SYSTEM INTERFACE ${SPILLWAY_CUDA_ROOT}/include)
# NCCL's, beside them.
cmake_path(GET SPILLWAY_CUDA_ROOT PARENT_PATH nvidia_packages)
target_include_directories(spillway_cuda_headers SYSTEM INTERFACE ${nvidia_packages}/nccl/include)
