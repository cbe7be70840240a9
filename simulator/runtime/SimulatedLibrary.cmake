# spillway_simulated_library(TARGET FILE VERSION_MAP): a shared library of the simulator under the name of NVIDIA's, in
# lib/sim, where it finds its neighbours; it exports only what the version map names, so that symbols bind to the
# versions that stock programs ask for.
function(spillway_simulated_library target file version_map)
  string(REGEX REPLACE "\\.so.*" "" base ${file})
  string(REGEX REPLACE ".*\\.so" ".so" suffix ${file})
  set_target_properties(${target} PROPERTIES
    PREFIX "" OUTPUT_NAME ${base} SUFFIX ${suffix} NO_SONAME TRUE
    LIBRARY_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/lib/sim
    CXX_VISIBILITY_PRESET default
    BUILD_RPATH "$ORIGIN" BUILD_RPATH_USE_ORIGIN ON
    LINK_DEPENDS ${version_map})
  target_link_options(${target} PRIVATE -Wl,-soname,${file} -Wl,--version-script=${version_map})
endfunction()
