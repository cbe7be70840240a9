// Runs fuzzed instructions against an allocator whose blocks go to peers, to the host and to a file, and
// holds what they hold against what was written there.
//
// Thread-safety: none. Ownership: table, allocator and file must outlive it.
#pragma once
#include <array>
#include <functional>
#include <vector>

#include "allocator/tiers/tiers.h"
#include "tests/strategies/tiers/fuzz_file.h"
#include "tests/strategies/tiers/on_device.h"
#include "tests/strategies/tiers/tiers_contents.h"
#include "tests/strategies/tiers/tiers_fuzz.h"

namespace spillway::testing::tiers {

inline constexpr size_t kDevices = 3, kUsedDevices = 2;  // blocks belong to two, and lie on all

class Machine {
 public:
  using Streams = std::array<std::array<StreamId, 2>, kUsedDevices>;
  // `inject`: the driver and the file fail now and then.
  Machine(const driver::Table& table, Allocator& allocator, FuzzFile& file, const Streams& streams,
          bool inject)
      : table_(table),
        allocator_(allocator),
        file_(file),
        streams_(streams),
        contents_(table.simulator->alias_offset()),
        slots_(kSlots),
        inject_(inject) {
    for (size_t device = 0; device < kUsedDevices; ++device)
      EXPECT_EQ(allocator_.set_pool(id(device), kSinglePool, kPoolSingleHandle), Status::kOk);
  }

  void run(const Instruction& instruction) {
    const uint64_t fired_before = injected();
    failed_ = false;
    step(instruction);
    const bool fired = injected() != fired_before;
    fired_faults += fired ? 1 : 0;
    EXPECT_TRUE(fired || !failed_) << "no call of the driver failed on purpose";
  }

  void free_all() {
    table_.simulator->fail_call(0, nullptr, 0, CUDA_SUCCESS);
    for (Held& held : slots_) release(held);
    for (size_t device = 0; device < kDevices; ++device) set_others(device, 0);
  }

  // Allocations and frees of a device, so that events are looked at and what is elsewhere may return.
  void let_time_pass(DeviceId device, unsigned orders) {
    const OnDevice context(table_, device);
    for (unsigned i = 0; i < orders / 2; ++i) {
      uint64_t address = 0;
      if (allocator_.allocate(device, {512, {}, 0}, &address, nullptr) == Status::kOk)
        allocator_.free(address);
    }
  }

  bool synchronise() {
    bool idle = true;
    for (size_t device = 0; device < kUsedDevices; ++device) {
      const OnDevice context(table_, id(device));
      idle = table_.cuCtxSynchronize() == CUDA_SUCCESS && idle;
    }
    return idle;
  }

  uint64_t others(size_t device) const { return others_[device]; }
  static DeviceId id(size_t device) { return DeviceId{static_cast<int>(device)}; }

  uint64_t served = 0, refused = 0, fetched = 0, brought_back = 0, fired_faults = 0, unread = 0, shared = 0;

 private:
  struct Held {
    uint64_t address = 0, bytes = 0, key = 0, registered = 0;
    unsigned uses = 0;
    size_t device = 0;
    StreamId stream{};
    bool there() const { return address != 0 && (registered == 0 || uses != 0); }
  };
  static constexpr uint64_t kPrivatePool = 1, kSinglePool = 2;
  static uint64_t pool_of(uint32_t slot) {
    return slot % 14 != 13 ? 0 : slot < 14 ? kPrivatePool : kSinglePool;
  }
  struct Kernel {
    Machine& machine;
    const Held& held;
    bool writes;
  };

  void step(const Instruction& instruction) {
    Held& held = slots_[instruction.slot % kSlots];
    const size_t device = instruction.where % kUsedDevices;
    switch (instruction.what) {
      case Do::kAllocate:
        return allocate(held, instruction);
      case Do::kFree:
        return release(held);
      case Do::kWrite:
        return launch(held, instruction.where / 2 % 2, true);
      case Do::kRead:
        return launch(held, instruction.where / 2 % 2, false);
      case Do::kRegister:
        return add(held, instruction.size);
      case Do::kRemove:
        return remove(held);
      case Do::kTouch:
        touch(held);
        return instruction.aside() ? done(held) : void();
      case Do::kDone:
        return done(held);
      case Do::kHint:
        return spillway::touch(allocator_, held.address);
      case Do::kBringBack:
        return return_to(id(device));
      case Do::kEmptyCache:
        allocator_.empty_cache(id(device));
        return;
      case Do::kLimit:
        allocator_.limit(id(device), instruction.size);
        return;
      case Do::kCapacity:
        table_.simulator->set_capacity(static_cast<int>(instruction.slot % kDevices), instruction.size);
        return;
      case Do::kOthers:
        return set_others(instruction.slot % kDevices, instruction.size);
      case Do::kFail:
        return fail_driver(instruction);
      case Do::kFileFull:
        if (inject_) file_.while_full(instruction.size, [&] { allocate(held, instruction); });
        return;
      case Do::kShare:
        return share(held);
      case Do::kFileShort:
        if (inject_) file_.while_short(instruction.size, [&] { touch_all(); });
        return;
    }
  }

  uint64_t injected() const {
    SpillwaySimulatorCounts counts{};
    table_.simulator->counts(&counts);
    return counts.injected_failures;
  }

  void fail_driver(const Instruction& instruction) {
    if (!inject_) return;
    table_.simulator->fail_call(instruction.size, kFaults[instruction.slot % std::size(kFaults)], 0,
                                instruction.where % 2 == 0 ? CUDA_ERROR_UNKNOWN : CUDA_ERROR_OUT_OF_MEMORY);
  }

  void allocate(Held& held, const Instruction& instruction) {
    release(held);
    held.device = instruction.where % kUsedDevices;
    held.stream = streams_[held.device][instruction.where / 2 % 2];
    const uint64_t pool = pool_of(instruction.slot);
    held.bytes = instruction.size / 512 * 512 + 512;
    if (pool == kPrivatePool) held.bytes = std::min(held.bytes, 2 * kMiB);  // it keeps its pages
    const OnDevice context(table_, id(held.device));
    const Request request{held.bytes, held.stream, pool};
    const Status status = allocator_.allocate(id(held.device), request, &held.address, nullptr);
    failed_ = status == Status::kDriverFailed;
    EXPECT_TRUE(status == Status::kOk || status == Status::kOutOfMemory || failed_);
    ++(status == Status::kOk ? served : refused);
    if (status != Status::kOk) return;
    launch(held, 0, true);
    if (instruction.aside()) add(held, held.bytes);
  }

  void release(Held& held) {
    if (held.address == 0) return;
    if (held.there()) compare(held);
    EXPECT_EQ(allocator_.free(held.address), Status::kOk);
    held = {};
  }

  // On the block's own stream, or on the device's other one, of which the allocator is told.
  void launch(Held& held, uint32_t other, bool writes) {
    if (!held.there()) return;
    StreamId stream = held.stream;
    if (other != 0) {
      stream = streams_[held.device][stream == streams_[held.device][0] ? 1 : 0];
      EXPECT_EQ(allocator_.record_stream(held.address, stream), Status::kOk);
    }
    if (writes) held.key = ++last_key_;
    const OnDevice context(table_, id(held.device));
    const SpillwayRange range{held.address, held.bytes, writes ? 1U : 0U};
    Kernel kernel{*this, held, writes};
    EXPECT_EQ(table_.simulator->submit(reinterpret_cast<CUstream>(stream), "fuzz", &range, 1, 200'000,
                                       &Machine::work, &kernel),
              CUDA_SUCCESS);
  }
  // In the order of submission, and before `submit` returns.
  static void work(void* argument) {
    const auto& kernel = *static_cast<Kernel*>(argument);
    if (kernel.writes)
      kernel.machine.contents_.write(kernel.held.address, kernel.held.bytes, kernel.held.key);
    else
      kernel.machine.compare(kernel.held);
  }
  void compare(const Held& held) const {
    EXPECT_EQ(contents_.compare(held.address, held.bytes, held.key), "");
  }

  void share(const Held& held) {
    if (held.address == 0) return;
    SharedBlock block;
    std::string why_not;
    const Status status = allocator_.share(held.address, &block, &why_not);
    shared += status == Status::kOk ? 1 : 0;
    // Where the device could not be waited for, nothing can be moved.
    if (status != Status::kInvalid) judge(status);
    EXPECT_TRUE(status != Status::kInvalid || inject_) << why_not;
    if (status == Status::kOk) compare(held);  // it lies on the device, whoever uses it
  }

  void add(Held& held, uint64_t bytes) {
    if (held.address == 0) return;
    const bool before = held.registered != 0;
    EXPECT_EQ(allocator_.add_block(held.address, std::min(bytes, held.bytes)),
              before ? Status::kInvalid : Status::kOk);
    if (!before) held.registered = std::min(bytes, held.bytes);
  }
  void remove(Held& held) {
    if (held.address == 0 || held.registered == 0) return;
    const Status status = allocator_.remove_block(held.address, nullptr);
    judge(status);
    if (status == Status::kOk) held.registered = held.uses = 0;
  }
  void touch(Held& held) {
    if (held.address == 0 || held.registered == 0) return;
    const uint64_t before = spilled_bytes(allocator_, Tier::kNvme);
    const Status status = allocator_.touch_block(held.address, nullptr);
    judge(status);
    if (status != Status::kOk) return;
    ++held.uses;
    fetched += spilled_bytes(allocator_, Tier::kNvme) < before ? 1 : 0;
    compare(held);
  }
  void touch_all() {
    for (Held& held : slots_) {
      const unsigned before = held.uses;
      touch(held);
      if (held.uses != before) done(held);
    }
  }
  void done(Held& held) {
    if (held.address == 0 || held.registered == 0) return;
    EXPECT_EQ(allocator_.done_block(held.address), held.uses == 0 ? Status::kInvalid : Status::kOk);
    held.uses -= held.uses == 0 ? 0 : 1;
  }
  // Of what may find no room, or no bytes.
  void judge(Status status) {
    failed_ = status == Status::kDriverFailed;
    unread += status == Status::kFileFailed ? 1 : 0;
    EXPECT_TRUE(status == Status::kOk || status == Status::kOutOfMemory || failed_ ||
                (status == Status::kFileFailed && inject_));
  }

  void return_to(DeviceId device) {
    let_time_pass(device, 12'000);
    if (synchronise()) brought_back += unspill(allocator_, device) != 0 ? 1 : 0;
  }

  void set_others(size_t device, uint64_t bytes) {
    const auto number = static_cast<int>(device);
    if (others_[device] != 0) table_.simulator->discharge(number, "others", others_[device]);
    const bool charged = bytes != 0 && table_.simulator->charge(number, "others", bytes) == CUDA_SUCCESS;
    others_[device] = charged ? bytes : 0;
  }

  const driver::Table& table_;
  Allocator& allocator_;
  FuzzFile& file_;
  const Streams streams_;
  const Contents contents_;
  std::vector<Held> slots_;
  bool inject_, failed_ = false;
  uint64_t last_key_ = 0;
  std::array<uint64_t, kDevices> others_{};
};

}  // namespace spillway::testing::tiers
