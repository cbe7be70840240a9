# spillway_cuda_headers: the headers of CUDA 13.0, from the toolkit or the PyPI packages that tools/setup found.
# Nothing links a CUDA library: the driver is resolved at run time.
set(SPILLWAY_DEPS ${CMAKE_SOURCE_DIR}/.deps CACHE PATH "The environment that tools/setup made")
if(NOT EXISTS ${SPILLWAY_DEPS}/cuda-root)
  message(FATAL_ERROR "no ${SPILLWAY_DEPS}: run tools/setup first")
endif()
file(STRINGS ${SPILLWAY_DEPS}/cuda-root SPILLWAY_CUDA_ROOT LIMIT_COUNT 1)
add_library(spillway_cuda_headers INTERFACE)
target_include_directories(spillway_cuda_headers SYSTEM INTERFACE ${SPILLWAY_CUDA_ROOT}/include)
