// Where the simulator's libraries are: beside this program, or where SPILLWAY_LIB_DIR says.
#pragma once
#include <string>
#include <string_view>
#include <vector>

namespace spillway::tools {

struct SimulatorLibraries {
  std::string folder;                // holds libcuda.so.1
  std::string search;                // the folders in which programs find them: a list by ":"
  std::vector<std::string> preload;  // paths, in the order in which they are to be loaded
  std::string kernels;  // libspillway_kernels.so, which stands for one a LibTorch; "" if there is none
};

// False and `error` where they are not complete.
bool find_simulator_libraries(SimulatorLibraries* out, std::string* error);

// Where there is a driver library for a profile, in the folder of that name, it stands in the place of the
// newest one.
void use_driver_of(std::string_view profile, SimulatorLibraries* libraries);

}  // namespace spillway::tools
