# What tools/gpu-archive packs for a machine with a GPU (docs/gpu-check.md), laid out as this tree and its build are, so that
# tools/gpu-check finds everything at the same place: `cmake --install build --component gpu_check --prefix FOLDER`.
# spillway_gpu_archive: the target that builds all of it.
if(SPILLWAY_SANITIZE OR NOT TARGET spillway_command OR NOT TARGET test_strategies_core)
  return()
endif()
set(programs spillway_command gpu_probe test_strategies_core example_drop_cache bench_calls)
set(libraries spillway spillway_preload spillway_plugin)
if(SPILLWAY_HAS_LIBTORCH)
  list(APPEND programs spillway-train spillway-serve bench_updates_gpu bench_nvme)
  get_property(for_libtorch GLOBAL PROPERTY SPILLWAY_LIBTORCH_LIBRARIES)
  list(APPEND libraries ${for_libtorch})
endif()
get_property(simulated GLOBAL PROPERTY SPILLWAY_SIMULATED_LIBRARIES)
list(APPEND simulated spillway_sim_driver)
add_custom_target(spillway_gpu_archive DEPENDS ${programs} ${libraries} ${simulated})

set_target_properties(test_strategies_core PROPERTIES INSTALL_RPATH "$ORIGIN/../lib")
set(packed COMPONENT gpu_check EXCLUDE_FROM_ALL)
install(TARGETS ${programs} RUNTIME DESTINATION build/bin ${packed})
install(TARGETS ${libraries} LIBRARY DESTINATION build/lib ${packed})
install(TARGETS ${simulated} LIBRARY DESTINATION build/lib/sim ${packed})

# As the manifest has it, versions of torch as "2.11", and their folders, for builds with another trainer.
set(torch_versions)
set(torch_folders)
foreach(version root IN ZIP_LISTS SPILLWAY_TORCH_VERSIONS torch_roots)
  string(REPLACE "_" "." version "${version}")
  list(APPEND torch_versions "\"${version}\"")
  list(APPEND torch_folders "\"${version}\": \"${root}\"")
endforeach()
list(JOIN torch_versions ", " torch_versions)
list(JOIN torch_folders ", " torch_folders)
string(REPLACE "_" "." trainer_torch "${SPILLWAY_TORCH_VERSION}")
file(WRITE ${CMAKE_BINARY_DIR}/install/gpu_archive.json
  "{\"version\": \"${PROJECT_VERSION}\", \"torch\": [${torch_versions}], \"trainer_torch\": \"${trainer_torch}\", \
\"torch_folders\": {${torch_folders}}}\n")
