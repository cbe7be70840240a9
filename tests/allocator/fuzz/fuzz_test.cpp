// Random programs, and the ones that once failed.
#include <cstdio>

#include "allocator/tiers/tiers.h"
#include "strategies/ladder/ladder.h"
#include "tests/allocator/fuzz/fuzz_machine.h"
#include "tests/sanitized.h"

namespace spillway::testing {
namespace {

uint64_t number(const char* name, uint64_t otherwise) {
  const char* text = std::getenv(name);
  return text == nullptr ? otherwise : std::strtoull(text, nullptr, 0);
}

// One thread: nothing is launched while it is closed, but streams may be being captured. Not to be had while
// the driver maps nothing any more: what was unmapped to be moved is then lost, as on a broken device.
class CapturesGate final : public Gate {
 public:
  CapturesGate(const driver::Table& table, const std::vector<StreamId>& streams)
      : table_(table), streams_(streams) {}
  bool close(std::chrono::steady_clock::time_point) noexcept override { return !hopeless; }
  void open() noexcept override {}
  uint32_t captures() noexcept override {
    uint32_t count = 0;
    for (const StreamId stream : streams_) {
      CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
      const bool known =
          table_.cuStreamIsCapturing(reinterpret_cast<CUstream>(stream), &status) == CUDA_SUCCESS;
      count += known && status == CU_STREAM_CAPTURE_STATUS_NONE ? 0 : 1;
    }
    return count;
  }

  bool hopeless = false;

 private:
  const driver::Table& table_;
  const std::vector<StreamId>& streams_;
};

constexpr uint64_t kEachChecked = kSanitized ? 4000 : 20000;

class Fuzz : public SimulatedDevice {
 protected:
  void SetUp() override {
    SimulatedDevice::SetUp();
    start();
    streams = {StreamId{}, new_stream(), new_stream(CU_STREAM_DEFAULT)};
  }

  void start() {
    restart();
    ladder = std::make_unique<Ladder>(*allocator);
    ladder->add(make_wait_for_events());
    ladder->add(make_stitch());
    ladder->add(make_divide_handles());
    ladder->add(make_release_cache(*allocator));
    ladder->add(
        make_spill_to_host(*allocator, {.host_bytes = 64 * kMiB, .available = nullptr, .most_slowdown = 0}));
    ladder->set_gate(&gate);
    allocator->set_handler(ladder.get());
  }

  // Everything is checked after every `every` instructions; on a failure the last ones are printed.
  // SPILLWAY_FUZZ_OPERATIONS and SPILLWAY_FUZZ_SEED choose how many, and which.
  void run(uint64_t seed, uint64_t count, uint64_t every) {
    std::printf("seed %llu\n", static_cast<unsigned long long>(seed));
    Generator generator(seed);
    Machine machine(table, *allocator, streams, true);
    std::vector<Instruction> recent;
    for (uint64_t i = 0; i < count; ++i) {
      recent.push_back(generator.next());
      machine.run(recent.back());
      gate.hopeless = machine.never_maps_again;
      if ((i + 1) % 1000 == 0) bring_back_what_can();
      if ((i + 1) % every != 0) continue;
      check();
      EXPECT_EQ(text(control->violations), "");
      if (HasFailure()) {
        for (const Instruction& instruction : recent) std::printf("%s\n", instruction.print().c_str());
        FAIL() << "after " << i + 1 << " instructions of seed " << seed;
      }
      recent.clear();
    }
    control->fail_call(0, nullptr, 0, CUDA_SUCCESS);
    machine.free_all();
    check();
    const Memory now = memory();
    EXPECT_EQ(now.live, 0u);
    uint64_t useful = 0;
    for (const StrategyCounts& strategy : ladder->counts()) {
      std::printf("%s: tried %llu, useful %llu\n", strategy.name.c_str(),
                  static_cast<unsigned long long>(strategy.tried),
                  static_cast<unsigned long long>(strategy.useful));
      useful += strategy.useful != 0 ? 1 : 0;
    }
    print(machine, now);
    if (count < kEachChecked) return;
    EXPECT_GE(useful, 3u) << "the program hardly ran short";
    EXPECT_GT(now.rescued, 0u);
    if (count >= 100000) expect_coverage(machine, count);
  }

  void bring_back_what_can() {
    if (!gate.hopeless && gate.captures() == 0 && table.cuCtxSynchronize() == CUDA_SUCCESS)
      brought_back += unspill(*allocator, kDevice) != 0 ? 1 : 0;
  }

  static void print(const Machine& machine, const Memory& memory) {
    const auto show = [](const char* what, uint64_t count) {
      std::printf("%s %llu, ", what, static_cast<unsigned long long>(count));
    };
    show("served", machine.served);
    show("refused", machine.refused);
    show("broken", machine.broken);
    show("rescued", memory.rescued);
    show("shared", machine.shared);
    show("put back", machine.returned);
    show("captured", machine.captured);
    show("joined", machine.graphs().joined);
    show("replayed", machine.graphs().replayed);
    show("forks", machine.forks);
    show("sources", machine.sources);
    show("served by them", machine.from_sources);
    show("undone maps", machine.undone_maps);
    std::printf("\nfailures:");
    for (size_t i = 0; i < std::size(kFaults); ++i)
      std::printf(" %s %llu", kFaults[i] == nullptr ? "any" : kFaults[i],
                  static_cast<unsigned long long>(machine.fired[i]));
    std::printf("\n");
  }

  // That the program went every way that it is made for.
  static void expect_coverage(const Machine& machine, uint64_t count) {
    EXPECT_GT(machine.captured, count / 1000) << "hardly a request was made in a capture";
    EXPECT_GT(machine.graphs().joined, count / 10000);
    EXPECT_GT(machine.graphs().replayed, count / 10000);
    EXPECT_GT(machine.returned, count / 10000);
    EXPECT_GT(machine.refused, 0u);
    EXPECT_GT(machine.sources, 3u);
    EXPECT_GT(machine.from_sources, count / 1000);
    EXPECT_GT(machine.broken, 0u) << "no injected failure arrived";
    EXPECT_GT(machine.undone_maps, 0u) << "no map of several pages failed half-way";
    if (count < 1000000) return;
    for (size_t i = 0; i < std::size(kFaults); ++i)
      EXPECT_GT(machine.fired[i], 0u) << (kFaults[i] == nullptr ? "any call" : kFaults[i]) << " never failed";
  }

  std::unique_ptr<Ladder> ladder;
  std::vector<StreamId> streams;
  CapturesGate gate{table, streams};
  uint64_t brought_back = 0;
};

TEST_F(Fuzz, EveryInstructionIsChecked) {
  run(number("SPILLWAY_FUZZ_SEED", 1), kEachChecked, 1);
}

TEST_F(Fuzz, AMillionInstructions) {
  // Slices of a million, each with an allocator and a seed of its own: one that fails is repeated alone by
  // the seed that it printed.
  constexpr uint64_t kSlice = 1000000;
  const uint64_t seed = number("SPILLWAY_FUZZ_SEED", 2);
  const uint64_t count = number("SPILLWAY_FUZZ_OPERATIONS", kSlice / kShorter);
  for (uint64_t done = 0; done < count && !HasFailure(); done += kSlice) {
    if (done != 0) start();
    run(seed + done / kSlice, std::min(kSlice, count - done), 500);
  }
}

// The same with handles of many pages.
class LargeHandlesFuzz : public Fuzz {
 protected:
  LargeHandlesFuzz() { handle_rule = {.most_bytes = 16 * kMiB, .share = 3}; }
};

TEST_F(LargeHandlesFuzz, EveryInstructionIsChecked) {
  run(number("SPILLWAY_FUZZ_SEED", 4), kEachChecked, 1);
}

TEST_F(LargeHandlesFuzz, ManyInstructions) {
  run(number("SPILLWAY_FUZZ_SEED", 5), number("SPILLWAY_FUZZ_OPERATIONS", 300000 / kShorter), 500);
}

// Without a handler, so that nothing makes room: the largest request that is said to succeed does, and no
// larger one.
TEST_F(Fuzz, TheLargestExtentIsExact) {
  allocator->set_handler(nullptr);
  allocator->limit(kDevice, 96 * kMiB);
  Generator generator(number("SPILLWAY_FUZZ_SEED", 3));
  Machine machine(table, *allocator, {StreamId{}}, false);
  int compared = 0;
  for (int i = 0; i < 20000; ++i) {
    Instruction next = generator.next();
    if (next.what == Do::kLimit) continue;
    if (next.what == Do::kAllocate) next.size = 100 * kKiB + next.size % (6 * kMiB);
    machine.run(next);
    if (i % 20 != 0) continue;
    ASSERT_EQ(get(200 * kMiB), 0u);
    const uint64_t largest = failure->event.largest_extent_bytes;
    if (largest < 100 * kKiB) continue;
    ++compared;
    ASSERT_EQ(get(largest + 512), 0u) << i;
    const uint64_t block = get(largest);
    ASSERT_NE(block, 0u) << i;
    put(block);
  }
  EXPECT_GT(compared, 200);
  machine.free_all();
}

}  // namespace
}  // namespace spillway::testing
