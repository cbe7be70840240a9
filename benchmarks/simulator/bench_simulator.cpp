// What the simulated driver costs on the host: the cycle of one page (create, map, access, unmap, release),
// allocation, and submitted work, in null and in computing mode.
//   bench_simulator LIBRARY [--quick]      prints a table, then JSON
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <utility>
#include <vector>

#include "driver/mapping.h"

namespace {

using spillway::driver::Page;
using spillway::driver::Table;
using Clock = std::chrono::steady_clock;

constexpr uint64_t kPage = uint64_t{2} << 20;
constexpr int kRounds = 15;
constexpr double kBarUs = 20;  // of a page cycle

void must(CUresult result, const char* what) {
  if (result == CUDA_SUCCESS) return;
  std::fprintf(stderr, "bench_simulator: %s failed with error %d\n", what, static_cast<int>(result));
  std::exit(1);
}

// The median of several rounds, in µs a cycle.
template <typename Cycle>
double measure(int cycles, Cycle cycle) {
  std::vector<double> rounds;
  for (int round = 0; round < kRounds; ++round) {
    const auto start = Clock::now();
    for (int i = 0; i < cycles; ++i) cycle();
    rounds.push_back(std::chrono::duration<double, std::micro>(Clock::now() - start).count() / cycles);
  }
  std::nth_element(rounds.begin(), rounds.begin() + kRounds / 2, rounds.end());
  return rounds[kRounds / 2];
}

double page_cycle(const Table& table, int cycles) {
  CUmemAllocationProp prop = {};
  prop.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  prop.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
  const CUmemAccessDesc access = {prop.location, CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
  CUdeviceptr address = 0;
  must(table.cuMemAddressReserve(&address, kPage, 0, 0, 0), "cuMemAddressReserve");
  return measure(cycles, [&] {
    Page page{.handle = 0, .bytes = kPage};
    must(table.cuMemCreate(&page.handle, kPage, &prop, 0), "cuMemCreate");
    must(spillway::driver::map(table, address, {&page, 1}, {&access, 1}), "map");
    must(table.cuMemUnmap(address, kPage), "cuMemUnmap");
    must(table.cuMemRelease(page.handle), "cuMemRelease");
  });
}

double allocation(const Table& table, int cycles) {
  return measure(cycles, [&] {
    CUdeviceptr address = 0;
    must(table.cuMemAlloc(&address, kPage), "cuMemAlloc");
    must(table.cuMemFree(address), "cuMemFree");
  });
}

double submission(const Table& table, int cycles) {
  CUdeviceptr address = 0;
  must(table.cuMemAlloc(&address, kPage), "cuMemAlloc");
  const SpillwayRange ranges[] = {{address, 64, 1}, {address + 64, 64, 0}, {address + 128, 64, 0}};
  return measure(cycles, [&] {
    must(table.simulator->submit(nullptr, "add", ranges, 3, 1000, nullptr, nullptr), "submit");
  });
}

struct Row {
  double page_us = 0, allocation_us = 0, submission_us = 0;
};

Row run_mode(const Table& table, int cycles) {
  CUcontext context = nullptr;
  must(table.cuInit(0), "cuInit");
  must(table.cuDevicePrimaryCtxRetain(&context, 0), "cuDevicePrimaryCtxRetain");
  must(table.cuCtxSetCurrent(context), "cuCtxSetCurrent");
  return {page_cycle(table, cycles), allocation(table, cycles), submission(table, cycles)};
}

// In a process of its own: the simulator reads its mode once. False: the process failed.
bool run_in_child(const std::string& library, const char* mode, int cycles, Row& row) {
  int ends[2];
  if (pipe(ends) != 0) return false;
  const pid_t child = fork();
  if (child == 0) {
    setenv("SPILLWAY_SIM_VALUES", mode, 1);
    spillway::driver::LoadError error;
    const Table* table = spillway::driver::resolve(library.c_str(), &error);
    if (!table) {
      std::fprintf(stderr, "bench_simulator: %s\n", error.text.c_str());
      std::exit(1);
    }
    const Row measured = run_mode(*table, cycles);
    std::exit(write(ends[1], &measured, sizeof measured) == sizeof measured ? 0 : 1);
  }
  close(ends[1]);
  const bool read_all = read(ends[0], &row, sizeof row) == sizeof row;
  close(ends[0]);
  int status = 0;
  waitpid(child, &status, 0);
  return read_all && status == 0;
}

}  // namespace

int main(int count, char** arguments) {
  const bool quick = count == 3 && std::string(arguments[2]) == "--quick";
  if (count != 2 && !quick) {
    std::fprintf(stderr, "usage: bench_simulator LIBRARY [--quick]\n");
    return 2;
  }
  const int cycles = quick ? 20 : 2000;
  Row zeros, compute;
  if (!run_in_child(arguments[1], "zeros", cycles, zeros)) return 1;
  if (!run_in_child(arguments[1], "compute", cycles, compute)) return 1;
  std::printf("%-8s %18s %18s %18s %8s\n", "mode", "page cycle us", "alloc+free us", "submit us", "bar");
  std::string json;
  for (const auto& [mode, row] : {std::pair{"zeros", zeros}, {"compute", compute}}) {
    std::printf("%-8s %18.2f %18.2f %18.3f %8s\n", mode, row.page_us, row.allocation_us, row.submission_us,
                row.page_us <= kBarUs ? "met" : "missed");
    char line[200];
    std::snprintf(
        line, sizeof line,
        "%s\n  {\"mode\": \"%s\", \"page_us\": %.3f, \"allocation_us\": %.3f, \"submission_us\": %.4f}",
        json.empty() ? "" : ",", mode, row.page_us, row.allocation_us, row.submission_us);
    json += line;
  }
  std::printf("{\"benchmark\": \"simulator\", \"bar_us\": %.0f, \"rows\": [%s\n]}\n", kBarUs, json.c_str());
  return 0;
}
