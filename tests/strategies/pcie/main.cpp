#include <gtest/gtest.h>

#include <cstdlib>

int main(int argc, char** argv) {
  // The simulator reads them when it is loaded.
  setenv("SPILLWAY_SIM_VALUES", "compute", 1);
  setenv("SPILLWAY_SIM_PROFILE", "pcie-peers", 1);
  setenv("SPILLWAY_SIM_DEVICES", "3", 1);
  ::testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}
