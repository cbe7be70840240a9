// What kernels pay for operands that do not lie on their device: the link's time, on the virtual clock.
#include <cmath>
#include <fstream>

#include "tests/simulator/driver/support.h"

namespace spillway::test {
namespace {

constexpr uint64_t kBytes = 32 * kMiB;
constexpr uint64_t kKernelNs = 1000;

// Two ranges beside each other: one on device 0, one somewhere else.
class Operands {
 public:
  Operands(const driver::Table& table, CUmemLocation elsewhere) : table_(table) {
    EXPECT_EQ(table.cuMemAddressReserve(&here, 2 * kBytes, 0, 0, 0), CUDA_SUCCESS);
    there = here + kBytes;
    map(here, {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = 0});
    map(there, elsewhere);
  }

  // What a kernel takes that touches the range.
  uint64_t kernel_ns(const SpillwayRange& range) {
    const uint64_t before = now();
    EXPECT_EQ(table_.simulator->submit(nullptr, "kernel", &range, 1, kKernelNs, nullptr, nullptr),
              CUDA_SUCCESS);
    EXPECT_EQ(table_.cuStreamSynchronize(nullptr), CUDA_SUCCESS);
    return now() - before;
  }
  // Beyond what the same kernel takes with all on the device.
  double link_us(const SpillwayRange& range) {
    const uint64_t plain = kernel_ns({here, kBytes, 0});
    return static_cast<double>(kernel_ns(range) - plain) / 1000;
  }
  uint64_t now() const { return counts(table_).virtual_ns; }

  CUdeviceptr here = 0, there = 0;

 private:
  void map(CUdeviceptr address, CUmemLocation location) {
    CUmemAllocationProp prop = {};
    prop.type = CU_MEM_ALLOCATION_TYPE_PINNED;
    prop.location = location;
    CUmemGenericAllocationHandle handle = 0;
    ASSERT_EQ(table_.cuMemCreate(&handle, kBytes, &prop, 0), CUDA_SUCCESS);
    ASSERT_EQ(table_.cuMemMap(address, kBytes, 0, handle, 0), CUDA_SUCCESS);
    const CUmemAccessDesc access = read_write();
    ASSERT_EQ(table_.cuMemSetAccess(address, kBytes, &access, 1), CUDA_SUCCESS);
    ASSERT_EQ(table_.cuMemRelease(handle), CUDA_SUCCESS);
  }

  const driver::Table& table_;
};

constexpr CUmemLocation kHost{.type = CU_MEM_LOCATION_TYPE_HOST_NUMA, .id = 0};
constexpr CUmemLocation kPeer{.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = 1};

Settings machine_file(const std::string& text) {
  const std::string path = testing::TempDir() + "operands.toml";
  std::ofstream(path) << text;
  return {{"SPILLWAY_SIM_CONFIG", path}};
}

double us_of(uint64_t bytes, double gigabytes_a_second) {
  return static_cast<double>(bytes) / gigabytes_a_second / 1000;
}

TEST(Operands, InHostMemoryCostTheLinkOfTheirDirection) {
  in_process(machine_file("[bandwidth]\nh2d = 20\nd2h = 10\n"), [] {
    Operands operands(started_driver(), kHost);
    EXPECT_NEAR(operands.link_us({operands.there, kBytes, 0}), us_of(kBytes, 20), 1);
    EXPECT_NEAR(operands.link_us({operands.there, kBytes, 1}), us_of(kBytes, 10), 1);
    EXPECT_EQ(operands.link_us({operands.here, kBytes, 1}), 0);
  });
}

TEST(Operands, OnAPeerCostItsLink) {
  in_process(machine_file("devices = 2\n[bandwidth]\npeer = 40\n"), [] {
    Operands operands(started_driver(), kPeer);
    EXPECT_NEAR(operands.link_us({operands.there, kBytes, 0}), us_of(kBytes, 40), 1);
    EXPECT_NEAR(operands.link_us({operands.there, kBytes, 1}), us_of(kBytes, 40), 1);
  });
}

TEST(Operands, ThatLieThereInPartCostThatPart) {
  in_process(machine_file("[bandwidth]\nh2d = 20\n"), [] {
    Operands operands(started_driver(), kHost);
    EXPECT_NEAR(operands.link_us({operands.here + kBytes / 2, kBytes, 0}), us_of(kBytes / 2, 20), 1);
    EXPECT_NEAR(operands.link_us({operands.there + kMiB, kMiB, 0}), us_of(kMiB, 20), 1);
  });
}

// Each tile of the result reads its rows and columns anew.
TEST(Operands, OfAProductCostTheLinkAsOftenAsTheyAreRead) {
  in_process(machine_file("[bandwidth]\nh2d = 20\nd2h = 10\n[kernels]\ntile = 128\n"), [] {
    Operands operands(started_driver(), kHost);
    const double reads = 64 / std::sqrt(108);  // of an A100, for which 8192 rows are 64 tiles
    EXPECT_NEAR(operands.link_us({operands.there, kBytes, 0, 4096, 8192}), reads * us_of(kBytes, 20), 1);
    EXPECT_NEAR(operands.link_us({operands.there, kBytes, 0, 8192, 128}), us_of(kBytes, 20), 1) << "one tile";
    EXPECT_NEAR(operands.link_us({operands.there, kBytes, 1, 4096, 8192}), us_of(kBytes, 10), 1)
        << "written once";
    EXPECT_NEAR(operands.link_us({operands.there, kBytes, 0}), us_of(kBytes, 20), 1) << "no factor";
    constexpr uint64_t kCached = 20 * kMiB;  // half of the L2 cache
    EXPECT_NEAR(operands.link_us({operands.there, kCached, 0, 4096, 8192}), us_of(kCached, 20), 1);
  });
}

int repeat(void*) {
  return 0;
}
void let_go(void*) {}

TEST(Operands, CostAGraphAtEachLaunchWhatTheyCostThen) {
  auto settings = machine_file("[bandwidth]\nh2d = 20\n");
  settings["SPILLWAY_SIM_VALUES"] = "compute";
  in_process(settings, [] {
    const driver::Table& table = started_driver();
    Operands operands(table, kHost);
    CUstream stream = nullptr;
    ASSERT_EQ(table.cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING), CUDA_SUCCESS);
    ASSERT_EQ(table.cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_GLOBAL), CUDA_SUCCESS);
    const SpillwayRange range{operands.there, kBytes, 0};
    ASSERT_EQ(table.simulator->capture(stream, "kernel", &range, 1, kKernelNs, repeat, let_go, nullptr),
              CUDA_SUCCESS);
    CUgraph graph = nullptr;
    CUgraphExec exec = nullptr;
    ASSERT_EQ(table.cuStreamEndCapture(stream, &graph), CUDA_SUCCESS);
    ASSERT_EQ(table.cuGraphInstantiate(&exec, graph, 0), CUDA_SUCCESS);
    for (int launch = 0; launch < 2; ++launch) {
      const uint64_t before = operands.now();
      ASSERT_EQ(table.cuGraphLaunch(exec, stream), CUDA_SUCCESS);
      ASSERT_EQ(table.cuStreamSynchronize(stream), CUDA_SUCCESS);
      EXPECT_NEAR(static_cast<double>(operands.now() - before) / 1000, us_of(kBytes, 20), 3);
    }
  });
}

uint64_t operator_ns(const driver::Table& table, const SpillwayRange& range, double operations,
                     uint64_t bytes = 0) {
  const uint64_t before = counts(table).virtual_ns;
  EXPECT_EQ(table.simulator->operate(nullptr, &range, 1, bytes ? bytes : range.bytes, operations),
            CUDA_SUCCESS);
  EXPECT_EQ(table.cuStreamSynchronize(nullptr), CUDA_SUCCESS);
  return counts(table).virtual_ns - before;
}

TEST(Operands, OfOperatorsInNullModeCostTheLinkAlone) {
  in_process(machine_file("[bandwidth]\nh2d = 20\n"), [] {
    const driver::Table& table = started_driver();
    EXPECT_EQ(table.simulator->operators_take_time(), 0);
    const Operands operands(table, kHost);
    EXPECT_EQ(table.simulator->operators_take_time(), 1);
    const uint64_t nothing = operator_ns(table, {operands.here, kBytes, 1}, 1e12);
    const uint64_t something = operator_ns(table, {operands.there, kBytes, 0}, 1e12);
    EXPECT_LT(nothing, 1000u) << "the call that waits";
    EXPECT_NEAR(static_cast<double>(something - nothing) / 1000, us_of(kBytes, 20), 1);
  });
}

TEST(Operands, OfOperatorsTakeTheTimeOfMemoryOrArithmeticWhereKernelsAreTimed) {
  in_process(machine_file("kernel_ns = 5000\n[bandwidth]\nd2d = 1000\n[kernels]\ntflops = 100\n"), [] {
    const driver::Table& table = started_driver();
    EXPECT_EQ(table.simulator->operators_take_time(), SPILLWAY_SIMULATOR_TIMED);
    const Operands operands(table, kHost);
    EXPECT_NEAR(static_cast<double>(operator_ns(table, {operands.here, 512, 1}, 0)) / 1000, 5, 0.5);
    EXPECT_NEAR(static_cast<double>(operator_ns(table, {operands.here, kBytes, 1}, 0)) / 1000,
                us_of(kBytes, 1000), 0.5);
    const uint64_t half = operator_ns(table, {operands.here, kBytes, 1}, 0, kBytes / 2);
    EXPECT_NEAR(static_cast<double>(half) / 1000, us_of(kBytes / 2, 1000), 0.5) << "rows lie apart";
    EXPECT_NEAR(static_cast<double>(operator_ns(table, {operands.here, kBytes, 1}, 1e12)) / 1000, 10'000, 1);
  });
}

}  // namespace
}  // namespace spillway::test
