// The driver reads its settings when the runtime first asks for it, which is after main has begun.
#include <gtest/gtest.h>

#include <cstdlib>

int main(int argc, char** argv) {
  setenv("SPILLWAY_SIM_DEVICES", "2", 1);
  setenv("SPILLWAY_SIM_CAPACITY", "1GiB", 1);
  setenv("SPILLWAY_SIM_VALUES", "compute", 1);
  ::testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}
