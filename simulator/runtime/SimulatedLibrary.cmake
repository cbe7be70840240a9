# spillway_simulated_library(TARGET FILE VERSION_MAP): a shared library of the simulator under the name of NVIDIA's, in
# lib/sim, where it finds its neighbours; it exports only what the version map names, so that symbols bind to the
# versions that stock programs ask for.
#
# spillway_preload_simulator(VARIABLE): what LD_PRELOAD is for a test program: all those libraries, the runtime first.
function(spillway_simulated_library target file version_map)
  string(REGEX REPLACE "\\.so.*" "" base ${file})
  string(REGEX REPLACE ".*\\.so" ".so" suffix ${file})
  set_target_properties(${target} PROPERTIES
    PREFIX "" OUTPUT_NAME ${base} SUFFIX ${suffix} NO_SONAME TRUE
    LIBRARY_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/lib/sim
    CXX_VISIBILITY_PRESET default
    BUILD_RPATH "$ORIGIN" BUILD_RPATH_USE_ORIGIN ON INSTALL_RPATH "$ORIGIN"
    LINK_DEPENDS ${version_map})
  target_link_options(${target} PRIVATE -Wl,-soname,${file} -Wl,--version-script=${version_map})
  set_property(GLOBAL APPEND PROPERTY SPILLWAY_SIMULATED_LIBRARIES ${target})
endfunction()

function(spillway_preload_simulator variable)
  get_property(targets GLOBAL PROPERTY SPILLWAY_SIMULATED_LIBRARIES)
  list(TRANSFORM targets REPLACE "(.+)" "$<TARGET_FILE:\\1>")
  list(JOIN targets ":" paths)
  set(${variable} "${paths}:$<TARGET_FILE:spillway_sim_driver>" PARENT_SCOPE)
endfunction()
