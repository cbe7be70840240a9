// Tests under the profile `typical`, which has what driver calls and pinned memory cost on real cards.
#include <gtest/gtest.h>

#include <cstdlib>

int main(int argc, char** argv) {
  setenv("SPILLWAY_SIM_PROFILE", "typical", 1);
  testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}
