// What moving a block to host memory and back takes, by its size, beside a plain copy from and to pinned
// memory: the first time, when the host memory has to be made, and the second. On the virtual clock of the
// simulated driver, under the profile `typical` or what SPILLWAY_SIM_PROFILE says.
//
//   bench_spill LIBRARY [--quick] [--json FILE]
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <memory>
#include <string>
#include <vector>

#include "allocator/tiers/tiers.h"
#include "benchmarks/simulated.h"
#include "strategies/ladder/ladder.h"
#include "tests/strategies/tiers/host/timed_spill.h"
#include "tests/strategies/tiers/open_gate.h"

namespace {

using namespace spillway;
using benchmarks::fail, benchmarks::must;

constexpr uint64_t kMiB = 1 << 20, kPage = 2 * kMiB;
constexpr DeviceId kDevice{0};
constexpr double kBar = 0.9;
constexpr uint64_t kBarFrom = 64 * kMiB;

struct Settings {
  std::string library, json;
  std::vector<uint64_t> sizes = {2 * kMiB, 16 * kMiB, 64 * kMiB, 256 * kMiB, 1024 * kMiB};
};

struct Timed {
  uint64_t bytes = 0;
  double ms = 0;
  double gbs() const { return static_cast<double>(bytes) / ms / 1e6; }
};

// Two blocks of `size` on a device that holds no more, and what moves one of them away.
class Machine {
 public:
  Machine(const driver::Table& table, uint64_t size) : allocator_(table), table_(table), size_(size) {
    allocator_.limit(kDevice, 2 * size_ + kPage);
    ladder_.add(std::make_unique<testing::TimedSpill>(
        table, make_spill_to_host(allocator_, {.host_bytes = uint64_t{64} << 30, .most_slowdown = 0}),
        &times_));
    ladder_.set_gate(&gate_);
    allocator_.set_handler(&ladder_);
    for (const uint64_t bytes : {size_, size_, uint64_t{512}}) get(bytes);  // no page is idle
    let_time_pass(100);
  }
  ~Machine() { allocator_.set_handler(nullptr); }
  Machine(const Machine&) = delete;
  Machine& operator=(const Machine&) = delete;

  // A block of the size is served, and freed again.
  Timed spill(double* offered_ms) {
    must(allocator_.free(get(size_)) == Status::kOk, "a free");
    *offered_ms = static_cast<double>(times_.offered_us) / 1e3;
    return {times_.copied_bytes, static_cast<double>(times_.took_ns) / 1e6};
  }
  Timed come_back() {
    allocator_.limit(kDevice, 5 * size_ + kPage);
    for (int i = 0; i < 200 && returnable_bytes(allocator_, kDevice) == 0; ++i) let_time_pass(2'000);
    const uint64_t start_ns = now_ns();
    Timed back{.bytes = unspill(allocator_, kDevice)};
    back.ms = static_cast<double>(now_ns() - start_ns) / 1e6;
    must(spilled_bytes(allocator_, Tier::kHost) == 0, "the way back");
    allocator_.limit(kDevice, 2 * size_ + kPage);
    return back;
  }
  // Between a block and pinned memory, and waited for.
  Timed plain_copy(bool to_host) {
    const uint64_t block = get(size_ / 2 < kPage ? kPage : size_ / 2);
    void* host = nullptr;
    must(table_.cuMemHostAlloc(&host, size_, 0) == CUDA_SUCCESS, "cuMemHostAlloc");
    const auto pinned = reinterpret_cast<CUdeviceptr>(host);
    const uint64_t bytes = size_ / 2 < kPage ? kPage : size_ / 2, start_ns = now_ns();
    must(table_.cuMemcpyAsync(to_host ? pinned : block, to_host ? block : pinned, bytes, nullptr) ==
                 CUDA_SUCCESS &&
             table_.cuStreamSynchronize(nullptr) == CUDA_SUCCESS,
         "a copy");
    const Timed copy{bytes, static_cast<double>(now_ns() - start_ns) / 1e6};
    table_.cuMemFreeHost(host);
    must(allocator_.free(block) == Status::kOk, "a free");
    return copy;
  }

 private:
  uint64_t get(uint64_t bytes) {
    uint64_t address = 0;
    FailurePtr failure;
    if (allocator_.allocate(kDevice, {bytes, {}, 0}, &address, &failure) != Status::kOk)
      fail(failure == nullptr ? "a request was refused"
                              : failure->text + ", " + ladder_.story_of(failure->event.incident));
    return address;
  }
  void let_time_pass(int orders) {
    for (int i = 0; i < orders / 2; ++i) must(allocator_.free(get(512)) == Status::kOk, "a free");
  }
  uint64_t now_ns() const {
    SpillwaySimulatorCounts counts{};
    table_.simulator->counts(&counts);
    return counts.virtual_ns;
  }

  Allocator allocator_;
  Ladder ladder_{allocator_};
  testing::OneThreadsGate gate_;
  testing::SpillTimes times_;
  const driver::Table& table_;
  const uint64_t size_;
};

struct Row {
  uint64_t size = 0;
  Timed to_host, from_host;  // plain copies
  Timed spill[2], back[2];
  double offered_ms[2]{};
  double spill_ratio(int i) const { return spill[i].gbs() / to_host.gbs(); }
  double back_ratio(int i) const { return back[i].gbs() / from_host.gbs(); }
  bool meets_the_bar() const {
    return size < kBarFrom || (spill_ratio(1) >= kBar && back_ratio(0) >= kBar && back_ratio(1) >= kBar);
  }
};

Row measure(const driver::Table& table, uint64_t size) {
  Row row;
  row.size = size;
  {
    Machine machine(table, size);
    for (int i = 0; i < 2; ++i) {
      row.spill[i] = machine.spill(&row.offered_ms[i]);
      row.back[i] = machine.come_back();
    }
  }
  Machine machine(table, size);
  double offered = 0;
  machine.spill(&offered);
  row.to_host = machine.plain_copy(true);
  row.from_host = machine.plain_copy(false);
  return row;
}

void print(const std::vector<Row>& rows) {
  std::printf("%8s %8s %8s | %10s %8s %6s | %8s %8s %6s | %6s %6s   bar %.1f from %.0f MiB on\n", "MiB",
              "DtoH", "HtoD", "1st offer", "1st ms", "ratio", "offer", "2nd ms", "ratio", "back", "again",
              kBar, static_cast<double>(kBarFrom) / kMiB);
  for (const Row& row : rows)
    std::printf("%8.0f %8.2f %8.2f | %10.2f %8.2f %6.2f | %8.2f %8.2f %6.2f | %6.2f %6.2f   %s\n",
                static_cast<double>(row.size) / kMiB, row.to_host.gbs(), row.from_host.gbs(),
                row.offered_ms[0], row.spill[0].ms, row.spill_ratio(0), row.offered_ms[1], row.spill[1].ms,
                row.spill_ratio(1), row.back_ratio(0), row.back_ratio(1),
                row.size < kBarFrom   ? ""
                : row.meets_the_bar() ? "met"
                                      : "missed");
}

bool write_json(const std::string& path, const std::vector<Row>& rows) {
  std::ofstream out(path);
  out << "{\"benchmark\": \"spill\", \"bar\": " << kBar << ", \"rows\": [";
  const char* separator = "";
  for (const Row& row : rows) {
    out << separator << "\n  {\"bytes\": " << row.size << ", \"to_host_gbs\": " << row.to_host.gbs()
        << ", \"from_host_gbs\": " << row.from_host.gbs();
    for (int i = 0; i < 2; ++i) {
      const char* which = i == 0 ? "first" : "second";
      out << ", \"" << which << "\": {\"offered_ms\": " << row.offered_ms[i]
          << ", \"spill_ms\": " << row.spill[i].ms << ", \"spill_ratio\": " << row.spill_ratio(i)
          << ", \"back_ms\": " << row.back[i].ms << ", \"back_ratio\": " << row.back_ratio(i) << "}";
    }
    out << "}";
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
      settings->sizes = {2 * kMiB, 64 * kMiB};
    } else if (flag == "--json" && i + 1 < argc) {
      settings->json = argv[++i];
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
    std::fprintf(stderr, "usage: bench_spill LIBRARY [--quick] [--json FILE]\n");
    return 2;
  }
  setenv("SPILLWAY_SIM_PROFILE", "typical", 0);
  const driver::Table& table = benchmarks::start_simulated(settings.library);
  std::vector<Row> rows;
  rows.reserve(settings.sizes.size());
  for (const uint64_t size : settings.sizes) rows.push_back(measure(table, size));
  print(rows);
  if (!settings.json.empty() && !write_json(settings.json, rows)) fail("cannot write " + settings.json);
  if (table.simulator->violations(nullptr, 0) != 0) fail("the referee found violations");
  return 0;
}
