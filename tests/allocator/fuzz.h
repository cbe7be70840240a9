// A fuzzer of the allocator with typed instructions: each prints as the line of C++ that repeats it, so a
// failing case becomes a test by pasting.
#pragma once
#include <sys/wait.h>
#include <unistd.h>

#include <cstdint>
#include <map>
#include <random>
#include <string>
#include <vector>

#include "spillway/strategies/ladder.h"
#include "tests/allocator/simulated.h"

namespace spillway::testing {

enum class Do : uint8_t {
  kAllocate,
  kFree,
  kRecord,
  kLaunch,
  kShare,
  kLimit,
  kEmptyCache,
  kPool,
  kFailDriver,
  kFailRequest,
  kCapture,  // begins one, or ends the one that there is
  kFork
};

struct Instruction {
  Do what;
  uint64_t size;    // bytes, or for faults the call
  uint32_t slot;    // which of the program's pointers; a quarter of them lie in private pools
  uint32_t stream;  // which stream

  std::string print() const {
    static constexpr const char* kNames[] = {"kAllocate",   "kFree",        "kRecord",     "kLaunch",
                                             "kShare",      "kLimit",       "kEmptyCache", "kPool",
                                             "kFailDriver", "kFailRequest", "kCapture",    "kFork"};
    return std::string("{Do::") + kNames[static_cast<int>(what)] + ", " + std::to_string(size) + ", " +
           std::to_string(slot) + ", " + std::to_string(stream) + "},";
  }
};

// Mostly allocations and frees over three kinds of sizes; now and then something unusual.
class Generator {
 public:
  explicit Generator(uint64_t seed) : random_(seed) {}

  Instruction next() {
    const uint64_t dice = pick(10000);
    const auto slot = static_cast<uint32_t>(pick(300));
    const auto stream = static_cast<uint32_t>(pick(10) < 7 ? 0 : pick(3));
    if (dice < 4800) return {Do::kAllocate, size(), slot, stream};
    if (dice < 9300) return {Do::kFree, 0, slot, stream};
    if (dice < 9600) return {Do::kRecord, 0, slot, stream};
    if (dice < 9900) return {Do::kLaunch, 0, slot, stream};
    if (dice < 9920) return {Do::kShare, pick(4), slot, stream};
    if (dice < 9929) return {Do::kCapture, 0, slot, 1 + stream % 2};
    if (dice < 9930) return {pick(8) == 0 ? Do::kFork : Do::kLaunch, 0, slot, stream};
    if (dice < 9950) return {Do::kLimit, (24 + pick(200)) << 20, slot, stream};
    if (dice < 9957) return {Do::kEmptyCache, 0, slot, stream};
    if (dice < 9960) return {Do::kPool, pick(8), slot, stream};
    if (dice < 9985) return {Do::kFailDriver, 1 + pick(8), slot, stream};
    return {Do::kFailRequest, 1 + pick(8), slot, stream};
  }

 private:
  uint64_t pick(uint64_t below) { return random_() % below; }
  uint64_t size() {
    const uint64_t kind = pick(10);
    if (kind < 4) return 1 + pick(64 * kKiB);
    if (kind < 9) return uint64_t{1} << (12 + pick(10)) | pick(4096);
    return 1 + pick(24 * kMiB);
  }
  std::mt19937_64 random_;
};

// Runs instructions against one allocator. Counters tell whether the interesting ways were really taken.
class Machine {
 public:
  Machine(const driver::Table& table, Allocator& allocator, std::vector<StreamId> streams, bool inject)
      : table_(table), allocator_(allocator), streams_(std::move(streams)), slots_(300), inject_(inject) {
    EXPECT_EQ(allocator_.set_pool(kDevice, kSinglePool, kPoolSingleHandle), Status::kOk);
  }

  void run(const Instruction& instruction) {
    const StreamId stream = streams_[instruction.stream % streams_.size()];
    uint64_t& slot = slots_[instruction.slot % slots_.size()];
    switch (instruction.what) {
      case Do::kAllocate:
        return allocate(slot, instruction.size, stream,
                        capturing(stream) ? graph_pool_ : pool_of(instruction.slot));
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
        return;
      case Do::kPool:
        return set_pool(1 + instruction.slot % kSinglePool, static_cast<uint32_t>(instruction.size));
      case Do::kFailDriver:
        if (inject_) {
          const bool broken = instruction.slot % 4 == 0;
          table_.simulator->fail_call(instruction.size, nullptr, 0,
                                      broken ? CUDA_ERROR_UNKNOWN : CUDA_ERROR_OUT_OF_MEMORY);
        }
        return;
      case Do::kFailRequest:
        if (inject_) allocator_.fail_request(instruction.size, false);
        return;
      case Do::kCapture:
        return graph_stream_ == nullptr ? begin_capture(stream) : end_capture();
      case Do::kFork:
        return fork_child(slot);
    }
  }

  void free_all() {
    if (graph_stream_ != nullptr) end_capture();
    for (uint64_t& slot : slots_) release(slot);
  }

  uint64_t served = 0, refused = 0, broken = 0, captured = 0, forks = 0, shared = 0;

 private:
  static constexpr uint64_t kSinglePool = 4;  // of single handles; 1 to 3 are of pages
  static uint64_t pool_of(uint32_t slot) { return slot % 4 == 3 ? 1 + slot / 4 % kSinglePool : 0; }

  void set_pool(uint64_t pool, uint32_t flags) {
    if (pool == kSinglePool) flags |= kPoolSingleHandle;
    EXPECT_EQ(allocator_.set_pool(kDevice, pool, flags), Status::kOk);
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

  void allocate(uint64_t& slot, uint64_t bytes, StreamId stream, uint64_t pool) {
    release(slot);
    const Status status = allocator_.allocate(kDevice, {bytes, stream, pool}, &slot, nullptr);
    ++(status == Status::kOk ? served : status == Status::kOutOfMemory ? refused : broken);
    captured += status == Status::kOk && capturing(stream) ? 1 : 0;
    EXPECT_EQ(slot == 0, status != Status::kOk);
    EXPECT_EQ(slot % 512, 0u);
    if (status == Status::kOk) owner_[slot] = {bytes, stream};
  }

  void release(uint64_t& slot) {
    if (slot == 0) return;
    owner_.erase(slot);
    EXPECT_EQ(allocator_.free(slot), Status::kOk);
    slot = 0;
  }

  // Work on the block's own stream, or on one that it was recorded on: what a correct program does.
  void launch(uint64_t slot, StreamId stream) {
    if (slot == 0 || capturing(stream)) return;
    const Owner& owner = owner_[slot];
    if (owner.stream != stream) allocator_.record_stream(slot, stream);
    const SpillwayRange range{slot, owner.bytes, 1};
    EXPECT_EQ(table_.simulator->submit(reinterpret_cast<CUstream>(stream), "fuzz", &range, 1, 200000, nullptr,
                                       nullptr),
              CUDA_SUCCESS);
  }

  bool capturing(StreamId stream) const {
    return graph_stream_ != nullptr && reinterpret_cast<CUstream>(stream) == graph_stream_;
  }

  // As a captured graph does: what its stream asks for lies in a pool of its own until it ends and is gone.
  void begin_capture(StreamId stream) {
    auto* begun = reinterpret_cast<CUstream>(stream);
    if (begun == nullptr) return;  // the legacy stream is never captured
    if (table_.cuStreamBeginCapture(begun, CU_STREAM_CAPTURE_MODE_RELAXED) != CUDA_SUCCESS) return;
    graph_stream_ = begun;
    ++graph_pool_;
  }

  void end_capture() {
    CUgraph graph = nullptr;
    // An injected failure may hit this call: then the stream still captures.
    for (int i = 0; i < 3 && table_.cuStreamEndCapture(graph_stream_, &graph) != CUDA_SUCCESS;) ++i;
    if (graph != nullptr) table_.cuGraphDestroy(graph);
    graph_stream_ = nullptr;
    EXPECT_EQ(allocator_.set_pool(kDevice, graph_pool_, kPoolReleased), Status::kOk);
  }

  // A child of fork is refused and may free what it inherited; its parent goes on.
  void fork_child(uint64_t slot) {
    const pid_t child = fork();
    if (child == 0) {
      uint64_t address = 0;
      const Status status = allocator_.allocate(kDevice, {kMiB, {}, 0}, &address, nullptr);
      _exit(status == Status::kUnavailable && (slot == 0 || allocator_.free(slot) == Status::kOk) ? 0 : 1);
    }
    int status = -1;
    EXPECT_EQ(waitpid(child, &status, 0), child);
    EXPECT_EQ(status, 0);
    ++forks;
  }

  struct Owner {
    uint64_t bytes = 0;
    StreamId stream{};
  };
  const driver::Table& table_;
  Allocator& allocator_;
  std::vector<StreamId> streams_;
  std::vector<uint64_t> slots_;
  std::map<uint64_t, Owner> owner_;
  bool inject_;
  CUstream graph_stream_ = nullptr;
  uint64_t graph_pool_ = 1000;  // of the last graph; those of `pool_of` are smaller
};

}  // namespace spillway::testing
