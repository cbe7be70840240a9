// Random programs on two devices of three whose blocks lie on each other, on the host and in a file: every
// byte is where the program left it, and every account closes, whatever call of the driver's or the file's
// fails.
#include <cstdio>
#include <cstdlib>

#include "strategies/ladder/ladder.h"
#include "tests/sanitized.h"
#include "tests/strategies/tiers/open_gate.h"
#include "tests/strategies/tiers/tiers_machine.h"

namespace spillway::testing {
namespace {
using tiers::kDevices, tiers::kUsedDevices, tiers::Machine, tiers::OnDevice;

// Much, or so little that what may go to the file does.
constexpr uint64_t kHostBytes[] = {24 * kMiB, 2 * kMiB}, kPeerBytes[] = {16 * kMiB, 2 * kMiB};
constexpr uint64_t kFileBytes = 48 * kMiB;
constexpr uint64_t kParts = 5;  // blocks of 3 MiB at most

uint64_t number(const char* name, uint64_t otherwise) {
  const char* text = std::getenv(name);
  return text == nullptr ? otherwise : std::strtoull(text, nullptr, 0);
}

class TiersFuzz : public SimulatedDevice {
 protected:
  void SetUp() override {
    SimulatedDevice::SetUp();
    ASSERT_EQ(control->mode(), SPILLWAY_SIMULATOR_COMPUTE);
    for (size_t device = 0; device < kUsedDevices; ++device) {
      const OnDevice context(table, Machine::id(device));
      streams[device] = {StreamId{}, new_stream()};
    }
  }
  void TearDown() override {
    allocator->set_handler(nullptr);
    SimulatedDevice::TearDown();
  }

  void start(bool little, uint64_t parts) {
    restart();
    for (size_t device = 0; device < kDevices; ++device)
      ASSERT_EQ(control->set_capacity(static_cast<int>(device), 96 * kMiB), CUDA_SUCCESS);
    std::string why_not;
    ASSERT_TRUE(use_page_file(*allocator, file.folder(), kFileBytes, &why_not, [] { return now; }))
        << why_not;
    limits.now = [] { return now; };
    limits.host_bytes = kHostBytes[little];
    limits.peer_bytes = kPeerBytes[little];
    ladder = std::make_unique<Ladder>(*allocator);
    ladder->add(make_stitch());
    ladder->add(make_release_cache(*allocator));
    ladder->add(make_spill_to_peer(*allocator, limits));
    ladder->add(make_evict_guests(*allocator, limits));
    ladder->add(make_spill_to_host(*allocator, limits));
    ladder->add(make_spill_to_nvme(*allocator, limits));
    ladder->set_gate(&gate);
    allocator->set_handler(ladder.get());
    for (size_t device = 0; device < kUsedDevices; ++device)
      allocator->limit(Machine::id(device), 40 * kMiB / parts);
  }

  // `exact`: nothing has failed on purpose, so that nothing waits to be tried again.
  void check_accounts(const Machine& machine, bool exact) {
    check();
    EXPECT_EQ(counts().violations, 0u) << text(control->violations);
    std::array<uint64_t, kDevices> held{};
    uint64_t in_use_elsewhere = 0, guests = 0;
    for (size_t device = 0; device < kUsedDevices; ++device) {
      Memory of_device;
      EXPECT_EQ(allocator->memory(Machine::id(device), &of_device), Status::kOk);
      EXPECT_EQ(of_device.limit, of_device.sum()) << "the equation does not close";
      held[device] = of_device.reserved;
      in_use_elsewhere += of_device.spilled;
    }
    for (size_t device = 0; device < kDevices; ++device) {
      const uint64_t here = guest_bytes(*allocator, Machine::id(device));
      guests += here;
      EXPECT_LE(here, limits.peer_bytes.value_or(0)) << device;
      held[device] += here + machine.others(device);
      EXPECT_GE(charged(device), held[device]) << "on device " << device << " there is less than is counted";
      EXPECT_TRUE(!exact || charged(device) == held[device])
          << charged(device) << " on device " << device << ", of which " << held[device] << " are counted";
    }
    const uint64_t on_host = spilled_bytes(*allocator, Tier::kHost);
    const uint64_t on_peers = spilled_bytes(*allocator, Tier::kPeer);
    const uint64_t in_file = spilled_bytes(*allocator, Tier::kNvme);
    EXPECT_EQ(guests, on_peers);
    EXPECT_LE(in_use_elsewhere, on_host + on_peers + in_file);
    EXPECT_LE(on_host, limits.host_bytes);
    if (exact) {
      EXPECT_EQ(file_room_bytes(*allocator) + in_file, kFileBytes);
    }
  }
  uint64_t charged(size_t device) {
    SpillwaySimulatorUsage usage{};
    EXPECT_EQ(control->usage(static_cast<int>(device), &usage), CUDA_SUCCESS);
    return usage.charged_bytes;
  }

  // Everything is checked after every instruction; on a failure all of them are printed.
  void run(uint64_t seed, uint64_t count) {
    const bool inject = seed % 2 == 0;
    std::printf("seed %llu\n", static_cast<unsigned long long>(seed));
    const uint64_t parts = seed / 4 % 2 != 0 ? kParts : 1;
    start(seed / 2 % 2 != 0, parts);
    tiers::Generator generator(seed, parts);
    Machine machine(table, *allocator, file, streams, inject);
    std::vector<tiers::Instruction> done;
    for (uint64_t i = 0; i < count; ++i) {
      done.push_back(generator.next());
      machine.run(done.back());
      now += std::chrono::milliseconds(100);
      check_accounts(machine, !inject);
      if (!HasFailure()) continue;
      for (const tiers::Instruction& instruction : done) std::printf("%s\n", instruction.print().c_str());
      FAIL() << "after " << done.size() << " instructions of seed " << seed;
    }
    machine.free_all();
    expect_nothing_left(machine, !inject);
    count_what_happened(machine);
  }

  void expect_nothing_left(Machine& machine, bool exact) {
    EXPECT_TRUE(machine.synchronise());
    for (size_t device = 0; device < kUsedDevices; ++device) machine.let_time_pass(Machine::id(device), 200);
    check_accounts(machine, exact);
    for (const Tier tier : {Tier::kPeer, Tier::kHost, Tier::kNvme})
      EXPECT_EQ(spilled_bytes(*allocator, tier), 0u) << static_cast<int>(tier);
    for (size_t device = 0; device < kDevices; ++device)
      EXPECT_EQ(guest_bytes(*allocator, Machine::id(device)), 0u) << device;
    now += Backoff::kMost;
    EXPECT_EQ(file_room_bytes(*allocator), kFileBytes);
  }

  void count_what_happened(const Machine& machine) {
    for (const StrategyCounts& strategy : ladder->counts()) useful[strategy.name] += strategy.useful;
    useful["a block read from the file"] += machine.fetched;
    useful["a shared block"] += machine.shared;
    useful["a return"] += machine.brought_back;
    useful["a refused request"] += machine.refused;
    useful["an injected failure"] += machine.fired_faults;
    useful["a read that failed"] += machine.unread;
  }

  static inline Backoff::Time now{};
  tiers::FuzzFile file;
  SpillLimits limits;
  Machine::Streams streams;
  OneThreadsGate gate;
  std::unique_ptr<Ladder> ladder;
  std::map<std::string, uint64_t> useful;
};

// Slices with an allocator and a seed of their own, the odd ones without failures. SPILLWAY_FUZZ_OPERATIONS
// and SPILLWAY_FUZZ_SEED choose others.
TEST_F(TiersFuzz, EveryInstructionIsChecked) {
  constexpr uint64_t kSlice = kSanitized ? 150 : 600, kSlices = 8;
  const uint64_t seed = number("SPILLWAY_FUZZ_SEED", 1);
  const uint64_t count = number("SPILLWAY_FUZZ_OPERATIONS", kSlices * kSlice);
  for (uint64_t done = 0; done < count && !HasFailure(); done += kSlice)
    run(seed + done / kSlice, std::min(kSlice, count - done));
  for (const auto& [what, times] : useful) {
    if (HasFailure()) return;
    std::printf("%s: %llu\n", what.c_str(), static_cast<unsigned long long>(times));
    EXPECT_TRUE(times != 0 || kSanitized || count < kSlices * kSlice) << what << " never was";
  }
}

}  // namespace
}  // namespace spillway::testing
