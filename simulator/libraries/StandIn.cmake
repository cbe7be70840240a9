# spillway_stand_in(NAME FILE PREFIX prefix [CALLS list HEADERS header...] [CUDA_12 file] SOURCES source...): a library of
# NVIDIA's as a CUDA program over the simulated runtime: lib/sim/FILE exports what begins with the prefix, and its calls
# that are alike are generated from CALLS with the signatures of the headers. CUDA_12: its file in CUDA 12, if that has
# another name; the calls are the same.
find_package(Python3 REQUIRED COMPONENTS Interpreter)
file(GLOB stand_in_header_folders ${SPILLWAY_CUDA_ROOT}/include
  ${SPILLWAY_ENVIRONMENT}/lib/python3*/site-packages/nvidia/*/include)

function(spillway_stand_in name file)
  cmake_parse_arguments(ARG "" "PREFIX;CALLS;CUDA_12" "HEADERS;SOURCES" ${ARGN})
  set(headers)
  foreach(header IN LISTS ARG_HEADERS)
    unset(found)
    find_file(found ${header} PATHS ${stand_in_header_folders} NO_DEFAULT_PATH REQUIRED NO_CACHE)
    list(APPEND headers ${found})
  endforeach()
  if(ARG_CALLS)
    set(calls ${CMAKE_CURRENT_BINARY_DIR}/${name}_calls.cpp)
    set(generator ${CMAKE_CURRENT_SOURCE_DIR}/generate_calls.py)
    add_custom_command(OUTPUT ${calls}
      COMMAND ${Python3_EXECUTABLE} ${generator} ${CMAKE_CURRENT_SOURCE_DIR}/${ARG_CALLS} ${calls} ${headers}
      DEPENDS ${generator} ${ARG_CALLS} ${headers} VERBATIM)
    set_source_files_properties(${calls} PROPERTIES COMPILE_OPTIONS -Wno-unused-parameter)
  endif()
  add_library(${name} SHARED ${ARG_SOURCES} ${calls} $<TARGET_OBJECTS:spillway_sim_stand_in>)
  target_include_directories(${name} PRIVATE ${CMAKE_SOURCE_DIR})
  target_include_directories(${name} SYSTEM PUBLIC ${stand_in_header_folders})
  target_link_libraries(${name} PUBLIC spillway_cuda_headers PRIVATE spillway_sim_runtime ${CMAKE_DL_LIBS})
  # cuDNN and cuSPARSE call deprecated what PyTorch imports.
  target_compile_options(${name} PRIVATE -Wno-deprecated-declarations)
  spillway_stand_in_file(${name} ${file} ${ARG_PREFIX})
  if(ARG_CUDA_12)
    add_library(${name}_12 SHARED $<TARGET_OBJECTS:${name}> $<TARGET_OBJECTS:spillway_sim_stand_in>)
    set_target_properties(${name}_12 PROPERTIES LINKER_LANGUAGE CXX)
    target_link_libraries(${name}_12 PRIVATE spillway_sim_runtime ${CMAKE_DL_LIBS})
    spillway_stand_in_file(${name}_12 ${ARG_CUDA_12} ${ARG_PREFIX})
  endif()
endfunction()

function(spillway_stand_in_file target file prefix)
  set(map ${CMAKE_CURRENT_BINARY_DIR}/${target}.map)
  file(CONFIGURE OUTPUT ${map} CONTENT "@file@ {\n  global:\n    @prefix@*;\n  local:\n    *;\n};\n" @ONLY)
  spillway_simulated_library(${target} ${file} ${map})
endfunction()
