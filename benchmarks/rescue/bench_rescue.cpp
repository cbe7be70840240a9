// What a rescue costs on the simulated driver. Host time, without latencies, of a request of 64 MiB that each
// strategy alone serves, and of bringing back what was spilled. On the virtual clock: the bandwidth of a
// spill ÷ that of a plain copy of the same bytes to pinned host memory, and bytes copied for each byte
// spilled.
//
//   bench_rescue LIBRARY [--quick] [--latencies FILE] [--json FILE]      FILE has [latency_ns], as the
//   simulator's configuration
#include <toml++/toml.h>
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "allocator/tiers/tiers.h"
#include "benchmarks/simulated.h"
#include "strategies/ladder/ladder.h"
#include "tests/strategies/tiers/open_gate.h"

namespace {

using namespace spillway;
using benchmarks::fail, benchmarks::must;
using Clock = std::chrono::steady_clock;

constexpr uint64_t kMiB = 1 << 20, kPage = 2 * kMiB, kRequest = 64 * kMiB;
constexpr uint64_t kCheckerboard = 8192 * kPage;
constexpr DeviceId kDevice{0};
constexpr double kStitchBarMs = 2, kBandwidthBar = 0.9;

struct Settings {
  std::string library, latencies, json;
  int runs = 21;
};

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  const size_t half = values.size() / 2;
  return values.size() % 2 == 1 ? values[half] : (values[half - 1] + values[half]) / 2;
}

// An allocator for blocks of so many bytes, with one strategy. Gives everything back at its end.
class Machine {
 public:
  Machine(const driver::Table& table, uint64_t bytes) : table_(table), allocator(table) {
    allocator.limit(kDevice, bytes + kPage);  // a page for the small ones of let_time_pass
    ladder.set_gate(&gate_);
    allocator.set_handler(&ladder);
  }
  ~Machine() {
    table_.cuCtxSynchronize();
    allocator.set_handler(nullptr);
  }
  Machine(const Machine&) = delete;
  Machine& operator=(const Machine&) = delete;

  uint64_t get(uint64_t bytes) {
    uint64_t address = 0;
    FailurePtr failure;
    if (allocator.allocate(kDevice, {bytes, {}, 0}, &address, &failure) != Status::kOk)
      fail(failure == nullptr ? "a request was refused" : failure->text);
    return address;
  }
  std::vector<uint64_t> blocks_of(uint64_t bytes, uint64_t all_bytes) {
    std::vector<uint64_t> blocks;
    for (uint64_t at = 0; at < all_bytes; at += bytes) blocks.push_back(get(bytes));
    return blocks;
  }
  // What was used a moment ago is spilled last, and what is elsewhere comes back after a while.
  void let_time_pass(int orders) {
    for (int i = 0; i < orders / 2; ++i) must(allocator.free(get(512)) == Status::kOk, "a free");
  }
  uint64_t now_ns() const { return counts().virtual_ns; }
  SpillwaySimulatorCounts counts() const {
    SpillwaySimulatorCounts counts{};
    table_.simulator->counts(&counts);
    return counts;
  }

 private:
  const driver::Table& table_;
  testing::OneThreadsGate gate_;

 public:
  Allocator allocator;
  Ladder ladder{allocator};
};

struct HostRow {
  std::string name;
  double median_us = 0, least_us = 0, most_us = 0;
};

// `prepare` leaves a machine of so many bytes, of which the request's are to be won.
HostRow measure(const Settings& settings, const driver::Table& table, const std::string& name,
                const std::function<void(Machine&)>& prepare, const std::function<void(Machine&)>& serve,
                uint64_t bytes = 2 * kRequest) {
  std::vector<double> us;
  for (int run = 0; run < settings.runs; ++run) {
    Machine machine(table, bytes);
    prepare(machine);
    const auto start = Clock::now();
    serve(machine);
    us.push_back(std::chrono::duration<double, std::micro>(Clock::now() - start).count());
  }
  return {name, median(us), *std::min_element(us.begin(), us.end()), *std::max_element(us.begin(), us.end())};
}

void make_holes(Machine& machine) {
  const std::vector<uint64_t> blocks = machine.blocks_of(kPage, 2 * kRequest);
  for (size_t i = 0; i < blocks.size(); i += 2)
    must(machine.allocator.free(blocks[i]) == Status::kOk, "a free");
}

// One gap of as many free pages as there are places without one between them: half of the pages went to
// larger blocks, and then the other half was freed.
void make_checkerboard(Machine& machine) {
  machine.ladder.add(make_stitch());
  const std::vector<uint64_t> blocks = machine.blocks_of(kPage, kCheckerboard);
  for (const size_t first : {0, 1}) {
    for (size_t i = first; i < blocks.size(); i += 2)
      must(machine.allocator.free(blocks[i]) == Status::kOk, "a free");
    if (first == 0) machine.blocks_of(kRequest, kCheckerboard / 2);
  }
}

void make_pending(Machine& machine, const driver::Table& table, CUstream other) {
  machine.blocks_of(kRequest, kRequest);
  const uint64_t block = machine.get(kRequest);
  const SpillwayRange range{block, kRequest, 1};
  table.simulator->submit(other, "kernel", &range, 1, 1'000'000, nullptr, nullptr);
  machine.allocator.record_stream(block, StreamId{reinterpret_cast<uint64_t>(other)});
  must(machine.allocator.free(block) == Status::kOk, "a free");
}

SpillLimits no_limits() {
  return {.host_bytes = uint64_t{64} << 30, .available = nullptr, .most_slowdown = 0};
}

void make_cold(Machine& machine) {
  machine.ladder.add(make_spill_to_host(machine.allocator, no_limits()));
  machine.blocks_of(kRequest / 2, 2 * kRequest);
  machine.let_time_pass(100);
}

// What was spilled may come back, and lies elsewhere yet.
void make_returnable(Machine& machine) {
  make_cold(machine);
  must(machine.allocator.free(machine.get(kRequest)) == Status::kOk, "a free");
  machine.let_time_pass(25'000);
  must(returnable_bytes(machine.allocator, kDevice) != 0, "waiting for room");
}

std::vector<HostRow> host_rows(const Settings& settings, const driver::Table& table, CUstream other) {
  const auto serve = [](Machine& machine) { machine.get(kRequest); };
  const auto holes = [&](const char* name, auto make) {
    return measure(
        settings, table, name,
        [&](Machine& machine) {
          machine.ladder.add(make(machine.allocator));
          make_holes(machine);
        },
        serve);
  };
  std::vector<HostRow> rows;
  rows.push_back(measure(
      settings, table, "wait_for_events",
      [&](Machine& machine) {
        machine.ladder.add(make_wait_for_events());
        make_pending(machine, table, other);
      },
      serve));
  rows.push_back(holes("stitch", [](Allocator&) { return make_stitch(); }));
  rows.push_back(
      measure(settings, table, "stitch, 8192 pieces in a gap", make_checkerboard, serve, kCheckerboard));
  rows.push_back(holes("release_cache", make_release_cache));
  rows.push_back(measure(settings, table, "spill_to_host", make_cold, serve));
  rows.push_back(measure(settings, table, "bring back", make_returnable, [](Machine& machine) {
    must(unspill(machine.allocator, kDevice) != 0, "bringing back");
  }));
  return rows;
}

struct SpillRow {
  uint64_t request_bytes = 0, block_bytes = 0, spilled_bytes = 0;
  bool latencies = false;
  double spill_ms = 0, plain_ms = 0, copied_per_byte = 0;
  double ratio() const { return plain_ms / spill_ms; }
};

// To pinned host memory, and waited for.
double plain_copy_ms(Machine& machine, const driver::Table& table, uint64_t source, uint64_t bytes) {
  void* host = nullptr;
  must(table.cuMemHostAlloc(&host, bytes, 0) == CUDA_SUCCESS, "cuMemHostAlloc");
  const uint64_t start_ns = machine.now_ns();
  must(table.cuMemcpyAsync(reinterpret_cast<CUdeviceptr>(host), source, bytes, nullptr) == CUDA_SUCCESS,
       "cuMemcpyAsync");
  must(table.cuStreamSynchronize(nullptr) == CUDA_SUCCESS, "cuStreamSynchronize");
  const uint64_t ns = machine.now_ns() - start_ns;
  table.cuMemFreeHost(host);
  return static_cast<double>(ns) / 1e6;
}

// A request of `request_bytes` where cold blocks of `block_bytes` take everything: twice the request. The
// host memory is that of an earlier spill; bench_spill has what making it costs.
SpillRow spill_on_virtual_clock(const driver::Table& table, uint64_t request_bytes, uint64_t block_bytes,
                                bool latencies) {
  Machine machine(table, 2 * request_bytes);
  machine.ladder.add(make_spill_to_host(machine.allocator, no_limits()));
  std::vector<uint64_t> earlier = machine.blocks_of(block_bytes, 2 * request_bytes);
  machine.let_time_pass(100);
  earlier.push_back(machine.get(request_bytes));
  for (const uint64_t block : earlier) must(machine.allocator.free(block) == Status::kOk, "a free");
  machine.let_time_pass(100);
  machine.blocks_of(block_bytes, 2 * request_bytes);
  machine.let_time_pass(100);
  must(spilled_bytes(machine.allocator, Tier::kHost) == 0, "room for the blocks");
  SpillRow row{.request_bytes = request_bytes, .block_bytes = block_bytes, .latencies = latencies};
  const uint64_t start_ns = machine.now_ns(), copied = machine.counts().copied_bytes;
  const uint64_t block = machine.get(request_bytes);
  row.spill_ms = static_cast<double>(machine.now_ns() - start_ns) / 1e6;
  row.spilled_bytes = spilled_bytes(machine.allocator, Tier::kHost);
  row.copied_per_byte =
      static_cast<double>(machine.counts().copied_bytes - copied) / static_cast<double>(row.spilled_bytes);
  row.plain_ms = plain_copy_ms(machine, table, block, request_bytes) *
                 static_cast<double>(row.spilled_bytes) / static_cast<double>(request_bytes);
  return row;
}

using Latencies = std::vector<std::pair<std::string, uint64_t>>;

Latencies read_latencies(const std::string& path) {
  Latencies latencies;
  try {
    const toml::table file = toml::parse_file(path);
    const toml::table* named = file["latency_ns"].as_table();
    if (named == nullptr) fail(path + " has no [latency_ns]");
    for (const auto& [name, value] : *named)
      latencies.emplace_back(std::string(name.str()), value.value_or(uint64_t{0}));
  } catch (const toml::parse_error& error) {
    fail(path + ": " + std::string(error.description()));
  }
  return latencies;
}

std::vector<SpillRow> spill_rows(const Settings& settings, const driver::Table& table) {
  const Latencies latencies = settings.latencies.empty() ? Latencies{} : read_latencies(settings.latencies);
  std::vector<SpillRow> rows;
  for (const bool with : {false, true}) {
    if (with && latencies.empty()) continue;
    for (const auto& [name, ns] : latencies)
      if (table.simulator->set_latency(name.c_str(), with ? ns : 0) != CUDA_SUCCESS)
        fail("the simulator has no function " + name);
    for (const uint64_t block_bytes : {2 * kMiB, 8 * kMiB, 32 * kMiB, 64 * kMiB})
      rows.push_back(spill_on_virtual_clock(table, 64 * kMiB, block_bytes, with));
    rows.push_back(spill_on_virtual_clock(table, 1024 * kMiB, 32 * kMiB, with));
    rows.push_back(spill_on_virtual_clock(table, 1024 * kMiB, 256 * kMiB, with));
  }
  return rows;
}

const char* verdict(bool met) {
  return met ? "met" : "missed";
}

void print(const std::vector<HostRow>& host, const std::vector<SpillRow>& spills) {
  std::printf("%-30s %10s %10s %10s\n", "64 MiB served by, host ms", "median", "least", "most");
  for (const HostRow& row : host) {
    const bool barred = row.name == "stitch";
    std::printf("%-30s %10.3f %10.3f %10.3f%s%s\n", row.name.c_str(), row.median_us / 1e3, row.least_us / 1e3,
                row.most_us / 1e3, barred ? "   bar 2: " : "",
                barred ? verdict(row.median_us / 1e3 <= kStitchBarMs) : "");
  }
  std::printf("\n%-10s %12s %12s %12s %12s %10s %14s %7s\n", "latencies", "request MiB", "blocks MiB",
              "spilled MiB", "virtual ms", "copy ms", "copied/spilled", "ratio");
  for (const SpillRow& row : spills)
    std::printf("%-10s %12.0f %12.0f %12.0f %12.3f %10.3f %14.3f %7.3f   bar 0.9: %s\n",
                row.latencies ? "on" : "off", static_cast<double>(row.request_bytes) / kMiB,
                static_cast<double>(row.block_bytes) / kMiB, static_cast<double>(row.spilled_bytes) / kMiB,
                row.spill_ms, row.plain_ms, row.copied_per_byte, row.ratio(),
                verdict(row.ratio() >= kBandwidthBar));
}

bool write_json(const std::string& path, const std::vector<HostRow>& host,
                const std::vector<SpillRow>& spills) {
  std::ofstream out(path);
  out << "{\"benchmark\": \"rescue\", \"stitch_bar_us\": " << kStitchBarMs * 1e3
      << ", \"bandwidth_bar\": " << kBandwidthBar << ", \"host\": [";
  const char* separator = "";
  for (const HostRow& row : host) {
    out << separator << "\n  {\"strategy\": \"" << row.name << "\", \"median_us\": " << row.median_us
        << ", \"least_us\": " << row.least_us << ", \"most_us\": " << row.most_us << "}";
    separator = ",";
  }
  out << "\n], \"spills\": [";
  separator = "";
  for (const SpillRow& row : spills) {
    out << separator << "\n  {\"latencies\": " << (row.latencies ? "true" : "false")
        << ", \"request_bytes\": " << row.request_bytes << ", \"block_bytes\": " << row.block_bytes
        << ", \"spilled_bytes\": " << row.spilled_bytes << ", \"spill_ms\": " << row.spill_ms
        << ", \"plain_copy_ms\": " << row.plain_ms << ", \"copied_per_byte\": " << row.copied_per_byte
        << ", \"ratio\": " << row.ratio() << "}";
    separator = ",";
  }
  out << "\n]}\n" << std::flush;
  return static_cast<bool>(out);
}

bool parse(int argc, char** argv, Settings* settings) {
  if (argc < 2 || argv[1][0] == '-') return false;
  settings->library = argv[1];
  for (int i = 2; i < argc; ++i) {
    const std::string flag = argv[i];
    if (flag == "--quick") {
      settings->runs = 3;
    } else if ((flag == "--latencies" || flag == "--json") && i + 1 < argc) {
      (flag == "--json" ? settings->json : settings->latencies) = argv[++i];
    } else {
      return false;
    }
  }
  return true;
}

}  // namespace

int main(int argc, char** argv) {
  Settings settings;
  if (!parse(argc, argv, &settings)) {
    std::fprintf(stderr, "usage: bench_rescue LIBRARY [--quick] [--latencies FILE] [--json FILE]\n");
    return 2;
  }
  const driver::Table& table = benchmarks::start_simulated(settings.library);
  CUstream other = nullptr;
  must(table.cuStreamCreate(&other, CU_STREAM_NON_BLOCKING) == CUDA_SUCCESS, "cuStreamCreate");
  const std::vector<HostRow> host = host_rows(settings, table, other);
  const std::vector<SpillRow> spills = spill_rows(settings, table);
  print(host, spills);
  table.cuStreamDestroy(other);
  if (!settings.json.empty() && !write_json(settings.json, host, spills))
    fail("cannot write " + settings.json);
  if (table.simulator->violations(nullptr, 0) != 0) fail("the referee found violations");
  for (const SpillRow& row : spills)
    if (row.copied_per_byte != 1) fail("a spill copied other bytes than it moved");
  return 0;
}
