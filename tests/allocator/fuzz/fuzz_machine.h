// Runs fuzzed instructions against one allocator and holds what it is given against what it was given before:
// no block may overlap a live one, or memory that work on another stream still touches.
//
// Thread-safety: none; several may share an allocator. Ownership: table and allocator must outlive it.
#pragma once
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <map>

#include "tests/allocator/fuzz/fuzz.h"
#include "tests/allocator/fuzz/fuzz_graphs.h"
#include "tests/allocator/fuzz/fuzz_source.h"

namespace spillway::testing {

// Counters tell whether the interesting ways were really taken.
class Machine {
 public:
  Machine(const driver::Table& table, Allocator& allocator, std::vector<StreamId> streams, bool inject)
      : table_(table),
        allocator_(allocator),
        streams_(std::move(streams)),
        slots_(300),
        inject_(inject),
        work_(table),
        graphs_(table, allocator, work_) {
    EXPECT_EQ(allocator_.set_pool(kDevice, kSinglePool, kPoolSingleHandle), Status::kOk);
    new_source();
  }

  void run(const Instruction& instruction) {
    if (!inject_ || instruction.what == Do::kFailDriver) return step(instruction);
    const bool map = fault_ == kMapFault;
    const uint64_t fired_before = injected(), broken_before = broken;
    const uint64_t maps = map ? calls("cuMemMap") : 0, unmaps = map ? calls("cuMemUnmap") : 0;
    step(instruction);
    if (injected() == fired_before) {
      EXPECT_EQ(broken, broken_before) << "no call of the driver failed on purpose";
      return;
    }
    ++fired[fault_];
    if (map && calls("cuMemMap") >= maps + 2 && calls("cuMemUnmap") > unmaps) ++undone_maps;
  }

  void free_all() {
    graphs_.end_all();
    for (uint64_t& slot : slots_) release(slot);
  }

  const FuzzGraphs& graphs() const { return graphs_; }
  uint64_t served = 0, refused = 0, broken = 0, captured = 0, forks = 0, shared = 0, returned = 0;
  uint64_t sources = 0, from_sources = 0;
  bool never_maps_again = false;  // the driver refuses each map, or each access, from some call on
  uint64_t undone_maps = 0;       // of several pages, when one was already mapped
  std::array<uint64_t, std::size(kFaults)> fired = {};  // instructions in which a fault of each kind struck

 private:
  static constexpr uint64_t kSinglePool = 4;  // of single handles; 1 to 3 are of pages, 5 has a source
  static constexpr uint64_t kSourcePools = uint64_t{1} << 40;  // the numbers of those, one after the other
  static uint64_t kind_of(uint32_t slot) { return 1 + slot / 4 % (kSinglePool + 1); }
  uint64_t pool_of(uint32_t slot) const {
    if (slot % 4 != 3) return 0;
    return kind_of(slot) > kSinglePool ? source_pool_ : kind_of(slot);
  }

  void step(const Instruction& instruction) {
    const StreamId stream = streams_[instruction.stream % streams_.size()];
    uint64_t& slot = slots_[instruction.slot % slots_.size()];
    switch (instruction.what) {
      case Do::kAllocate:
        return allocate(slot, {instruction.size, stream,
                               graphs_.capturing(stream) ? graphs_.pool() : pool_of(instruction.slot)});
      case Do::kFree:
        return release(slot);
      case Do::kRecord:
        if (slot != 0) {
          EXPECT_EQ(allocator_.record_stream(slot, stream), Status::kOk);
        }
        return;
      case Do::kLaunch:
        return launch(slot, stream);
      case Do::kShare:
        return share(slot, instruction.size == 0);
      case Do::kLimit:
        allocator_.limit(kDevice, instruction.size);
        return;
      case Do::kEmptyCache:
        allocator_.empty_cache(kDevice);
        empty_sources(allocator_, kDevice, kEveryPool);
        return;
      case Do::kPool:
        return set_pool(1 + instruction.slot % (kSinglePool + 1), static_cast<uint32_t>(instruction.size));
      case Do::kSource:
        return set_source_pool(kPoolReleased);
      case Do::kFailDriver:
        return fail_driver(instruction);
      case Do::kFailRequest:
        if (inject_) allocator_.fail_request(instruction.size, false);
        return;
      case Do::kCapture:
        return graphs_.capturing() ? graphs_.end() : graphs_.begin(stream, instruction.size);
      case Do::kJoin:
        return graphs_.join(stream);
      case Do::kReplay:
        return instruction.size == 0 ? graphs_.drop(instruction.slot)
                                     : graphs_.replay(instruction.slot, stream);
      case Do::kAllocateAt:
        return allocate_at(slot);
      case Do::kFork:
        return fork_child(slot);
    }
  }

  uint64_t injected() const {
    SpillwaySimulatorCounts counts{};
    table_.simulator->counts(&counts);
    return counts.injected_failures;
  }
  uint64_t calls(const char* function) const { return table_.simulator->calls(function); }

  // Once, or until the next such instruction.
  void fail_driver(const Instruction& instruction) {
    if (!inject_) return;
    fault_ = instruction.slot / 4 % std::size(kFaults);
    const bool unknown = instruction.slot % 4 == 0, persistent = instruction.stream == 2;
    never_maps_again = persistent && fault_ <= kMapFault + 1;
    table_.simulator->fail_call(instruction.size, kFaults[fault_], persistent ? 1 : 0,
                                unknown ? CUDA_ERROR_UNKNOWN : CUDA_ERROR_OUT_OF_MEMORY);
  }

  void set_pool(uint64_t pool, uint32_t flags) {
    if (pool == kSinglePool) flags |= kPoolSingleHandle;
    if (pool > kSinglePool) return set_source_pool(flags);
    EXPECT_EQ(allocator_.set_pool(kDevice, pool, flags), Status::kOk);
  }

  // One that was released takes no more requests.
  void set_source_pool(uint32_t flags) {
    flags &= kPoolReleased | kPoolLends;
    EXPECT_EQ(allocator_.set_pool(kDevice, source_pool_, flags), Status::kOk);
    if ((flags & kPoolReleased) != 0) new_source();
  }

  void new_source() {
    static std::atomic<uint64_t> last{kSourcePools};
    source_pool_ = ++last;
    EXPECT_EQ(set_source(allocator_, kDevice, source_pool_, FuzzSource::make(table_)), Status::kOk);
    ++sources;
  }

  // As another process would, if `map`: its mapping lasts for a moment.
  void share(uint64_t slot, bool map) {
    SharedBlock block;
    std::string text;
    if (slot == 0 || allocator_.share(slot, &block, &text) != Status::kOk) return;
    ++shared;
    uint64_t address = 0;
    if (map && allocator_.map_shared(kDevice, block.pages, &address, &text) == Status::kOk) {
      EXPECT_EQ(allocator_.unmap_shared(address), Status::kOk);
    }
  }

  void allocate(uint64_t& slot, const Request& request) {
    release(slot);
    const Status status = allocator_.allocate(kDevice, request, &slot, nullptr);
    ++(status == Status::kOk ? served : status == Status::kOutOfMemory ? refused : broken);
    EXPECT_EQ(slot == 0, status != Status::kOk);
    EXPECT_EQ(slot % 512, 0u);
    if (status != Status::kOk) return;
    from_sources += request.pool > kSourcePools ? 1 : 0;
    own(slot, request);
    if (!graphs_.capturing(request.stream)) return;
    ++captured;
    launch(slot, request.stream);
  }

  void own(uint64_t address, const Request& request) {
    const uint64_t end = address + request.bytes;
    const auto next = owner_.lower_bound(address);
    EXPECT_TRUE(next == owner_.end() || next->first >= end) << "it overlaps a live block";
    if (next != owner_.begin()) {
      const auto& [begin, before] = *std::prev(next);
      EXPECT_LE(begin + before.bytes, address) << "it overlaps a live block";
    }
    EXPECT_FALSE(work_.touches(request.stream, address, end)) << "another stream still uses it";
    owner_[address] = request;
  }

  void release(uint64_t& slot) {
    if (slot == 0) return;
    owner_.erase(slot);
    EXPECT_EQ(allocator_.free(slot), Status::kOk);
    slot = 0;
  }

  // As a checkpoint of a pool that is restored, or PyTorch's allocateWithAddress.
  void allocate_at(uint64_t& slot) {
    if (slot == 0) return;
    const uint64_t address = slot;
    const Request request = owner_.at(slot);
    const bool of_graph = request.pool > kSinglePool && request.pool < kSourcePools;
    if (of_graph && !graphs_.alive(request.pool)) return;
    // To wait for a replay on another stream is the program's part.
    if (of_graph && work_.touches(request.stream, address, address + request.bytes)) return;
    release(slot);
    if (allocator_.allocate_at(kDevice, request, address) != Status::kOk) return;
    ++returned;
    slot = address;
    own(slot, request);
  }

  // Work on the block's own stream, or on one that it was recorded on: what a correct program does. A graph
  // holds work on blocks of its pool.
  void launch(uint64_t slot, StreamId stream) {
    if (slot == 0) return;
    const Request& owner = owner_.at(slot);
    const bool in_graph = graphs_.capturing() && owner.pool == graphs_.pool();
    if (in_graph != graphs_.capturing(stream)) return;
    if (stream == StreamId{} && graphs_.holds_legacy_stream()) return;
    if (!in_graph && work_.full()) return;
    if (owner.stream != stream) allocator_.record_stream(slot, stream);
    const SpillwayRange range{slot, owner.bytes, 1};
    if (in_graph) return graphs_.launch(stream, range);
    EXPECT_EQ(table_.simulator->submit(reinterpret_cast<CUstream>(stream), "fuzz", &range, 1, 200000, nullptr,
                                       nullptr),
              CUDA_SUCCESS);
    work_.follow(stream, slot, slot + owner.bytes);
  }

  // A child of fork is refused and may free what it inherited; its parent goes on.
  void fork_child(uint64_t slot) {
    const uint64_t before = calls("cuMemUnmap") + calls("cuMemRelease") + calls("cuEventRecord");
    const pid_t child = fork();
    if (child == 0) {
      uint64_t address = 0;
      const Status status = allocator_.allocate(kDevice, {kMiB, {}, 0}, &address, nullptr);
      bool right = status == Status::kUnavailable && allocator_.empty_cache(kDevice) == 0;
      if (slot != 0) {
        right = right && allocator_.record_stream(slot, streams_.back()) == Status::kOk &&
                allocator_.free(slot) == Status::kOk;
      }
      right = right && calls("cuMemUnmap") + calls("cuMemRelease") + calls("cuEventRecord") == before;
      _exit(right ? 0 : 1);
    }
    int status = -1;
    EXPECT_EQ(waitpid(child, &status, 0), child);
    EXPECT_EQ(status, 0);
    ++forks;
  }

  const driver::Table& table_;
  Allocator& allocator_;
  std::vector<StreamId> streams_;
  std::vector<uint64_t> slots_;
  std::map<uint64_t, Request> owner_;  // by address
  bool inject_;
  uint64_t source_pool_ = 0;
  size_t fault_ = 0;  // which the last instruction of that kind chose
  QueuedWork work_;
  FuzzGraphs graphs_;
};

}  // namespace spillway::testing
