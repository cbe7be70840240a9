// Where pages of host memory can be made: on machines of several nodes, of none, and by what drivers take.
#include "driver/host_pages.h"

#include <gmock/gmock.h>

#include <filesystem>
#include <fstream>

#include "driver/probe.h"
#include "tests/simulator/driver/support.h"

namespace spillway::test {
namespace {

namespace fs = std::filesystem;
using driver::Features;
using driver::HostPagesTrial;
using testing::ElementsAre;
using testing::HasSubstr;

// sysfs's folder of nodes.
class Nodes {
 public:
  Nodes() {
    std::string name = testing::TempDir() + "nodesXXXXXX";
    folder_ = mkdtemp(name.data());
  }
  ~Nodes() { fs::remove_all(folder_); }
  Nodes(const Nodes&) = delete;
  Nodes& operator=(const Nodes&) = delete;

  void add(int number, const std::string& cpus, uint64_t kib) const {
    const fs::path node = folder_ / ("node" + std::to_string(number));
    fs::create_directory(node);
    std::ofstream(node / "cpulist") << cpus << "\n";
    std::ofstream(node / "meminfo") << "Node " << number << " MemTotal:       " << kib << " kB\n"
                                    << "Node " << number << " MemFree:        17 kB\n";
  }
  // Nodes by number; -1: the host without one.
  std::vector<int> tried(int named) const { return tried_in(named, folder_.string()); }
  static std::vector<int> tried_in(int named, const std::string& folder) {
    std::vector<int> out;
    for (const CUmemLocation& place : driver::host_locations(named, folder))
      out.push_back(place.type == CU_MEM_LOCATION_TYPE_HOST_NUMA ? place.id : -1);
    return out;
  }

 private:
  fs::path folder_;
};

TEST(HostLocations, the_devices_node_comes_first_and_the_host_last) {
  const Nodes nodes;
  nodes.add(0, "0-15,32-47", 131072000);
  nodes.add(1, "16-31", 131072000);
  EXPECT_THAT(nodes.tried(1), ElementsAre(1, 0, -1));
  EXPECT_THAT(nodes.tried(0), ElementsAre(0, 1, -1));
  EXPECT_THAT(nodes.tried(-1), ElementsAre(0, 1, -1));
}

TEST(HostLocations, nodes_without_memory_or_processors_are_left_out_also_the_devices_own) {
  const Nodes nodes;
  nodes.add(0, "0-7", 65536000);
  nodes.add(1, "", 65536000);
  nodes.add(2, "8-15", 0);
  nodes.add(8, "16", 1000);
  EXPECT_THAT(nodes.tried(8), ElementsAre(8, 0, -1));
  EXPECT_THAT(nodes.tried(1), ElementsAre(0, 8, -1));
  EXPECT_THAT(nodes.tried(2), ElementsAre(0, 8, -1));
}

TEST(HostLocations, where_the_system_tells_nothing_the_named_node_and_node_0_are_tried) {
  EXPECT_THAT(Nodes::tried_in(-1, "/no/such/folder"), ElementsAre(0, -1));
  EXPECT_THAT(Nodes::tried_in(0, "/no/such/folder"), ElementsAre(0, -1));
  EXPECT_THAT(Nodes::tried_in(3, "/no/such/folder"), ElementsAre(3, 0, -1));
}

Features features_on(const std::string& toml) {
  const std::string path = testing::TempDir() + "host_pages.toml";
  std::ofstream(path) << toml;
  setenv("SPILLWAY_SIM_CONFIG", path.c_str(), 1);
  return driver::probe(loaded_driver(), 0, HostPagesTrial::kYes);
}

TEST(HostPages, a_machine_that_names_no_node_has_them) {
  in_process({}, [] {
    const Features features = features_on("[driver]\nhost_numa_id = -1\n");
    EXPECT_TRUE(features.host_pages) << features.why_not;
    EXPECT_EQ(features.host_location.type, CU_MEM_LOCATION_TYPE_HOST_NUMA);
  });
}

TEST(HostPages, are_made_without_a_node_where_the_driver_takes_none) {
  in_process({}, [] {
    const Features features = features_on("[driver]\nhost_numa_id = -1\nhost_nodes = []\n");
    EXPECT_TRUE(features.host_pages) << features.why_not;
    EXPECT_EQ(features.host_location.type, CU_MEM_LOCATION_TYPE_HOST);
    EXPECT_TRUE(features.cpu_access);
  });
}

TEST(HostPages, a_driver_that_refuses_every_place_is_named_for_each) {
  in_process({}, [] {
    const Features features = features_on("[driver]\nhost_nodes = []\nhost_location = false\n");
    EXPECT_FALSE(features.host_pages);
    EXPECT_THAT(features.why_not,
                testing::AllOf(HasSubstr("host pages: on node 0: cuMemCreate: CUDA_ERROR_INVALID_VALUE"),
                               HasSubstr("on the host without a node: cuMemCreate: CUDA_ERROR_INVALID")));
    EXPECT_EQ(text(loaded_driver().simulator->leaks), "");
  });
}

TEST(HostPages, go_without_the_cpu_where_the_driver_takes_no_descriptor_for_it) {
  in_process({}, [] {
    const Features features = features_on("[driver]\nhost_access = false\n");
    EXPECT_TRUE(features.host_pages) << features.why_not;
    EXPECT_FALSE(features.cpu_access);
    EXPECT_THAT(features.why_not, HasSubstr("CPU access: cuMemSetAccess takes no descriptor"));
    EXPECT_EQ(text(loaded_driver().simulator->leaks), "");
  });
}

}  // namespace
}  // namespace spillway::test
