// The driver reads its settings when it is first asked for, which is after main has begun.
#include <gtest/gtest.h>

#include <cstdlib>

int main(int argc, char** argv) {
  setenv("SPILLWAY_SIM_DEVICES", "8", 1);
  setenv("SPILLWAY_SIM_CAPACITY", "4GiB", 1);
  setenv("SPILLWAY_SIM_VALUES", "compute", 0);
  ::testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}
