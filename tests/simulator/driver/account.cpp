// What is charged against a card beside pages, and the report that a process leaves.
#include <gmock/gmock.h>

#include <csignal>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "tests/simulator/driver/support.h"

namespace spillway::test {
namespace {

using nlohmann::json;
using testing::HasSubstr;

SpillwaySimulatorUsage usage(const driver::Table& table, int device = 0) {
  SpillwaySimulatorUsage usage = {};
  EXPECT_EQ(table.simulator->usage(device, &usage), CUDA_SUCCESS);
  return usage;
}

uint64_t free_bytes(const driver::Table& table) {
  size_t free = 0, total = 0;
  EXPECT_EQ(table.cuMemGetInfo(&free, &total), CUDA_SUCCESS);
  return free;
}

TEST(Account, modelled_memory_counts_against_the_card_under_its_label) {
  in_process({{"SPILLWAY_SIM_CAPACITY", "100MiB"}, {"SPILLWAY_SIM_DEVICES", "2"}}, [] {
    const driver::Table& table = started_driver();
    ASSERT_EQ(table.simulator->version, uint32_t{SPILLWAY_SIMULATOR_CONTROL_VERSION});
    EXPECT_EQ(table.simulator->charge(0, "cublas", 30 * kMiB), CUDA_SUCCESS);
    EXPECT_EQ(table.simulator->charge(0, "nccl", 10 * kMiB), CUDA_SUCCESS);
    EXPECT_EQ(table.simulator->charge(0, "cublas", 20 * kMiB), CUDA_SUCCESS);
    EXPECT_EQ(free_bytes(table), 40 * kMiB);
    CUdeviceptr memory = 0;
    EXPECT_EQ(table.cuMemAlloc(&memory, 42 * kMiB), CUDA_ERROR_OUT_OF_MEMORY);
    EXPECT_EQ(table.cuMemAlloc(&memory, 40 * kMiB), CUDA_SUCCESS);
    EXPECT_EQ(table.simulator->charge(0, "nccl", 1), CUDA_ERROR_OUT_OF_MEMORY);
    EXPECT_EQ(table.simulator->discharge(0, "cublas", 50 * kMiB), CUDA_SUCCESS);
    // What comes after the peak leaves it as it was.
    EXPECT_EQ(table.simulator->charge(0, "cublas", kMiB), CUDA_SUCCESS);
    EXPECT_EQ(table.simulator->discharge(0, "cublas", kMiB), CUDA_SUCCESS);

    const SpillwaySimulatorUsage now = usage(table);
    EXPECT_EQ(now.capacity_bytes, 100 * kMiB);
    EXPECT_EQ(now.charged_bytes, 50 * kMiB);
    EXPECT_EQ(now.modelled_bytes, 10 * kMiB);
    EXPECT_EQ(now.peak_bytes, 100 * kMiB);
    EXPECT_EQ(now.refused_requests, 2u);
    ASSERT_EQ(now.part_count, 2u);
    EXPECT_STREQ(now.parts[0].label, "cublas");
    EXPECT_EQ(now.parts[0].bytes, 0u);
    EXPECT_EQ(now.parts[0].at_peak_bytes, 50 * kMiB);
    EXPECT_STREQ(now.parts[1].label, "nccl");
    EXPECT_EQ(now.parts[1].bytes, 10 * kMiB);
    EXPECT_EQ(usage(table, 1).charged_bytes, 0u);
  });
}

TEST(Account, wrong_requests_are_refused_and_change_nothing) {
  in_process({{"SPILLWAY_SIM_CAPACITY", "100MiB"}}, [] {
    EXPECT_EQ(loaded_driver().simulator->charge(0, "early", 1), CUDA_ERROR_NOT_INITIALIZED);
    const driver::Table& table = started_driver();
    const SpillwaySimulatorControl& control = *table.simulator;
    EXPECT_EQ(control.charge(1, "x", 1), CUDA_ERROR_INVALID_DEVICE);
    EXPECT_EQ(control.charge(0, nullptr, 1), CUDA_ERROR_INVALID_VALUE);
    EXPECT_EQ(control.charge(0, "", 1), CUDA_ERROR_INVALID_VALUE);
    EXPECT_EQ(control.charge(0, std::string(48, 'x').c_str(), 1), CUDA_ERROR_INVALID_VALUE);
    EXPECT_EQ(control.charge(0, "x", UINT64_MAX), CUDA_ERROR_OUT_OF_MEMORY);
    EXPECT_EQ(control.charge(0, "x", 5), CUDA_SUCCESS);
    EXPECT_EQ(control.discharge(0, "x", 6), CUDA_ERROR_INVALID_VALUE);
    EXPECT_EQ(control.discharge(0, "y", 1), CUDA_ERROR_INVALID_VALUE);
    EXPECT_EQ(control.usage(0, nullptr), CUDA_ERROR_INVALID_VALUE);
    EXPECT_EQ(usage(table).charged_bytes, 5u);
    for (int i = 0; i < SPILLWAY_SIMULATOR_MAX_PARTS - 1; ++i)
      EXPECT_EQ(control.charge(0, std::to_string(i).c_str(), 1), CUDA_SUCCESS);
    EXPECT_EQ(control.charge(0, "one too many", 1), CUDA_ERROR_INVALID_VALUE);
    EXPECT_EQ(control.charge(0, "x", 1), CUDA_SUCCESS);
  });
}

// Bytes of a part on device 0.
uint64_t part(const driver::Table& table, const std::string& label) {
  const SpillwaySimulatorUsage now = usage(table);
  for (uint32_t i = 0; i < now.part_count; ++i)
    if (label == now.parts[i].label) return now.parts[i].bytes;
  return 0;
}

TEST(Overheads, a_card_has_a_context_of_its_size) {
  const auto context_of = [](const char* card, uint64_t least_mib, uint64_t most_mib) {
    in_process({{"SPILLWAY_SIM_CARD", card}}, [&] {
      const driver::Table& table = started_driver();
      EXPECT_GE(part(table, "context"), least_mib * kMiB) << card;
      EXPECT_LE(part(table, "context"), most_mib * kMiB) << card;
      EXPECT_EQ(free_bytes(table), usage(table).capacity_bytes - part(table, "context"));
      EXPECT_EQ(table.cuDevicePrimaryCtxRelease(0), CUDA_SUCCESS);
      EXPECT_EQ(part(table, "context"), 0u);
    });
  };
  context_of("t4-16gb", 80, 120);
  context_of("rtx3090-24gb", 256, 258);  // measured: 256
  context_of("h100-80gb", 480, 560);
}

TEST(Overheads, are_modelled_with_a_card_unless_somebody_says_otherwise) {
  const auto expect = [](const Settings& settings, uint64_t context, bool handle) {
    in_process(settings, [&] {
      const driver::Table& table = started_driver();
      EXPECT_EQ(part(table, "context"), context);
      EXPECT_EQ(table.simulator->overhead(0, "cudnn.handle") > 0, handle);
      EXPECT_EQ(table.simulator->overhead(1, "cudnn.handle"), 0u);
      EXPECT_EQ(table.simulator->overhead(0, "cublas.handle"), 4 * kMiB) << "documented: it always holds";
    });
  };
  const std::string path = "/tmp/spillway-overheads-" + std::to_string(getpid()) + ".toml";
  std::ofstream(path) << "context_bytes = \"3MiB\"\n";
  expect({{"SPILLWAY_SIM_CAPACITY", "1GiB"}}, 0, false);
  expect({{"SPILLWAY_SIM_CARD", "rtx3090-24gb"}}, 256 * kMiB, true);
  expect({{"SPILLWAY_SIM_CARD", "rtx3090-24gb"}, {"SPILLWAY_SIM_OVERHEADS", "off"}}, 0, false);
  expect({{"SPILLWAY_SIM_CARD", "rtx3090-24gb"}, {"SPILLWAY_SIM_CONFIG", path}}, 3 * kMiB, true);
  expect({{"SPILLWAY_SIM_CAPACITY", "1GiB"}, {"SPILLWAY_SIM_OVERHEADS", "on"}}, 432 * kMiB, true);
  std::filesystem::remove(path);
  in_process({{"SPILLWAY_SIM_CARD", "t4-16gb"}}, [] {
    const driver::Table& table = started_driver();
    testing::internal::CaptureStderr();
    EXPECT_EQ(table.simulator->overhead(0, "no.row"), 0u);
    EXPECT_THAT(testing::internal::GetCapturedStderr(), HasSubstr("'no.row' is no row"));
  });
}

TEST(Overheads, a_card_without_room_for_a_context_has_none) {
  in_process({{"SPILLWAY_SIM_CARD", "t4-16gb"}, {"SPILLWAY_SIM_CAPACITY", "50MiB"}}, [] {
    const driver::Table& table = loaded_driver();
    CUcontext context = nullptr;
    EXPECT_EQ(table.cuInit(0), CUDA_SUCCESS);
    EXPECT_EQ(table.cuDevicePrimaryCtxRetain(&context, 0), CUDA_ERROR_OUT_OF_MEMORY);
    EXPECT_EQ(usage(table).refused_requests, 1u);
  });
}

class Report : public testing::Test {
 protected:
  Report() : path_("/tmp/spillway-report-" + std::to_string(getpid()) + ".json") {}
  ~Report() override { std::filesystem::remove(path_); }
  json read() const {
    std::ifstream file(path_);
    return json::parse(file, nullptr, false);
  }
  const std::string path_;
};

TEST_F(Report, is_written_at_the_end) {
  in_process({{"SPILLWAY_SIM_REPORT", path_}, {"SPILLWAY_SIM_CAPACITY", "100MiB"}}, [] {
    const driver::Table& table = started_driver();
    CUdeviceptr address = 0, other = 0;
    EXPECT_EQ(table.simulator->charge(0, "cublas", 5), CUDA_SUCCESS);
    EXPECT_EQ(table.cuMemAlloc(&address, 100), CUDA_SUCCESS);
    EXPECT_EQ(table.cuMemAlloc(&other, 100), CUDA_SUCCESS);
    EXPECT_EQ(table.cuMemFree(other), CUDA_SUCCESS);
    EXPECT_EQ(table.cuMemFree(address + 1), CUDA_ERROR_INVALID_VALUE);
  });
  const json report = read();
  EXPECT_EQ(report["written"], "end");
  const json& device = report["devices"].at(0);
  EXPECT_EQ(device["capacity_bytes"], 100 * kMiB);
  EXPECT_EQ(device["peak_bytes"], 2 * kPage + 5);
  EXPECT_EQ(device["charged_bytes"], kPage + 5);
  EXPECT_EQ(device["modelled"], json({{"cublas", 5}}));
  EXPECT_EQ(device["modelled_at_peak"], json({{"cublas", 5}}));
  EXPECT_EQ(device["refused_requests"], 0);
  EXPECT_EQ(report["counters"]["driver_calls"], 2);
  EXPECT_EQ(report["violations"]["count"], 1);
  EXPECT_THAT(report["violations"]["texts"].at(0).get<std::string>(), HasSubstr("which is no allocation"));
  EXPECT_THAT(report["leaks"].at(0).get<std::string>(), HasSubstr("+100) not freed"));
}

TEST_F(Report, says_what_crossed_the_link_and_what_was_page_locked_at_most) {
  in_process({{"SPILLWAY_SIM_REPORT", path_}}, [] {
    const driver::Table& table = started_driver();
    CUdeviceptr device = 0, other = 0, managed = 0;
    void* pinned = nullptr;
    std::vector<char> own(3 * 4096);
    EXPECT_EQ(table.cuMemAlloc(&device, kMiB), CUDA_SUCCESS);
    EXPECT_EQ(table.cuMemAlloc(&other, kMiB), CUDA_SUCCESS);
    EXPECT_EQ(table.cuMemAllocManaged(&managed, kMiB, CU_MEM_ATTACH_GLOBAL), CUDA_SUCCESS);
    EXPECT_EQ(table.cuMemHostRegister(own.data(), own.size(), 0), CUDA_SUCCESS);
    EXPECT_EQ(table.cuMemHostAlloc(&pinned, 2 * kMiB, 0), CUDA_SUCCESS);
    EXPECT_EQ(table.cuMemcpyHtoD(device, pinned, 1000), CUDA_SUCCESS);
    EXPECT_EQ(table.cuMemcpyDtoH(own.data(), device, 300), CUDA_SUCCESS);
    EXPECT_EQ(table.cuMemcpyDtoD(other, device, 5000), CUDA_SUCCESS);
    EXPECT_EQ(table.cuMemFreeHost(pinned), CUDA_SUCCESS);
    EXPECT_EQ(table.cuMemHostUnregister(own.data()), CUDA_SUCCESS);
    EXPECT_EQ(table.cuMemHostAlloc(&pinned, kMiB, 0), CUDA_SUCCESS);
  });
  const json counters = read()["counters"];
  EXPECT_EQ(counters["copied_bytes"], 6300);
  EXPECT_EQ(counters["to_device_bytes"], 1000);
  EXPECT_EQ(counters["to_host_bytes"], 300);
  EXPECT_EQ(counters["pinned_peak_bytes"], 2 * kMiB + 3 * 4096);
}

TEST_F(Report, of_the_first_refusal_survives_a_kill) {
  const pid_t child = fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    setenv("SPILLWAY_SIM_REPORT", path_.c_str(), 1);
    setenv("SPILLWAY_SIM_CAPACITY", "100MiB", 1);
    const driver::Table& table = started_driver();
    CUdeviceptr address = 0;
    table.cuMemAlloc(&address, 60 * kMiB);
    table.cuMemAlloc(&address, 50 * kMiB);
    kill(getpid(), SIGKILL);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  ASSERT_TRUE(WIFSIGNALED(status));
  const json report = read();
  EXPECT_EQ(report["written"], "first refusal");
  const json& device = report["devices"].at(0);
  EXPECT_EQ(device["peak_bytes"], 60 * kMiB);
  EXPECT_EQ(device["refused_requests"], 1);
  EXPECT_EQ(device["first_refusal"],
            json({{"asked_bytes", 50 * kMiB}, {"free_bytes", 40 * kMiB}, {"label", ""}}));
}

TEST_F(Report, goes_where_a_link_says_and_a_folder_may_have_any_name) {
  namespace fs = std::filesystem;
  const fs::path folder = path_ + "-%p";
  fs::create_directory(folder);
  fs::create_symlink(path_, folder / "link");
  for (const char* name : {"link", "report-%p"}) {
    const std::string path = folder / name;
    in_process({{"SPILLWAY_SIM_REPORT", path}},
               [] { EXPECT_EQ(started_driver().simulator->write_report(), CUDA_SUCCESS); });
  }
  EXPECT_TRUE(fs::is_symlink(folder / "link"));
  EXPECT_EQ(read()["devices"].size(), 1u);
  EXPECT_EQ(std::distance(fs::directory_iterator(folder), {}), 2);
  fs::remove_all(folder);
}

TEST_F(Report, is_written_when_asked_for_and_says_when_it_can_not_be) {
  in_process({{"SPILLWAY_SIM_REPORT", path_}}, [&] {
    EXPECT_EQ(loaded_driver().simulator->write_report(), CUDA_ERROR_NOT_INITIALIZED);
    EXPECT_EQ(started_driver().simulator->write_report(), CUDA_SUCCESS);
    EXPECT_EQ(read()["written"], "asked");
  });
  in_process({{"SPILLWAY_SIM_REPORT", "/nowhere/report"}},
             [] { EXPECT_EQ(started_driver().simulator->write_report(), CUDA_ERROR_FILE_NOT_FOUND); });
  in_process({}, [] { EXPECT_EQ(started_driver().simulator->write_report(), CUDA_SUCCESS); });
}

}  // namespace
}  // namespace spillway::test
