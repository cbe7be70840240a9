# What `cmake --install` and CPack take: a tree that works wherever it is moved (docs/install.md). All that finds its
# neighbours by path lies in lib/spillway/, as in the build's lib/; there is one core, and lib/libspillway.so is a link to it.
# spillway_installed: the target that builds all of it, and none of the tests; tools/demo and the README's commands need no
# more.
if(SPILLWAY_SANITIZE OR NOT TARGET spillway_command)
  return()
endif()
include(CMakePackageConfigHelpers)
set(private lib/spillway)

# The debug information names this machine's folders, and stays in the build folder.
install(CODE "set(CMAKE_INSTALL_DO_STRIP TRUE)")

set(programs spillway_command)
set(libraries spillway_preload spillway_plugin)
if(SPILLWAY_HAS_LIBTORCH)
  list(APPEND programs spillway-train spillway-serve)
  get_property(for_libtorch GLOBAL PROPERTY SPILLWAY_LIBTORCH_LIBRARIES)
  list(APPEND libraries ${for_libtorch})
endif()
get_property(simulated GLOBAL PROPERTY SPILLWAY_SIMULATED_LIBRARIES)
list(APPEND simulated spillway_sim_driver)
add_custom_target(spillway_installed DEPENDS ${programs})  # they bring what they load

install(TARGETS ${programs} RUNTIME DESTINATION bin)
install(TARGETS spillway EXPORT Spillway LIBRARY DESTINATION ${private})
install(TARGETS ${libraries} LIBRARY DESTINATION ${private})
install(TARGETS ${simulated} LIBRARY DESTINATION ${private}/sim)
get_property(older_drivers GLOBAL PROPERTY SPILLWAY_SIMULATED_OLDER_DRIVERS)
foreach(driver IN LISTS older_drivers)
  get_target_property(version ${driver} SPILLWAY_DRIVER_VERSION)
  install(TARGETS ${driver} LIBRARY DESTINATION ${private}/sim/driver-${version})
endforeach()
file(MAKE_DIRECTORY ${CMAKE_BINARY_DIR}/install)
file(CREATE_LINK spillway/libspillway.so ${CMAKE_BINARY_DIR}/install/libspillway.so SYMBOLIC)
install(FILES ${CMAKE_BINARY_DIR}/install/libspillway.so DESTINATION lib)
install(FILES ${CMAKE_SOURCE_DIR}/include/spillway/spillway.h ${CMAKE_SOURCE_DIR}/include/spillway/recover.h
  DESTINATION include/spillway)
install(FILES ${CMAKE_SOURCE_DIR}/include/spillway/libtorch/recover.h DESTINATION include/spillway/libtorch)
# The module; the wheel (tools/wheel) adds the command.
install(DIRECTORY ${CMAKE_SOURCE_DIR}/python/spillway DESTINATION ${private}/python
  FILES_MATCHING PATTERN "*.py" PATTERN "py.typed" PATTERN "__main__.py" EXCLUDE PATTERN "_command.py" EXCLUDE
  PATTERN "__pycache__" EXCLUDE)

install(EXPORT Spillway NAMESPACE Spillway:: FILE SpillwayConfig.cmake DESTINATION lib/cmake/Spillway)
write_basic_package_version_file(${CMAKE_BINARY_DIR}/install/SpillwayConfigVersion.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${CMAKE_BINARY_DIR}/install/SpillwayConfigVersion.cmake DESTINATION lib/cmake/Spillway)

# The licences of this project, of the headers and the archive that its programs are made with, and of what is in a report's page.
install(FILES ${CMAKE_SOURCE_DIR}/LICENSE DESTINATION share/doc/spillway)
foreach(package libcli11-dev nlohmann-json3-dev libtomlplusplus-dev libprotozero-dev libspdlog-dev libfmt-dev
    liburing-dev libxxhash-dev node-d3-zoom node-d3-array)
  install(FILES /usr/share/doc/${package}/copyright DESTINATION share/doc/spillway RENAME LICENSE.${package} OPTIONAL)
endforeach()

string(TOLOWER ${CMAKE_SYSTEM_NAME} system)
set(CPACK_GENERATOR TGZ)
set(CPACK_PACKAGE_FILE_NAME spillway-${PROJECT_VERSION}-${system}-${CMAKE_SYSTEM_PROCESSOR})
set(CPACK_VERBATIM_VARIABLES ON)
include(CPack)
