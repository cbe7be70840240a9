// The block: a piece of a segment. Blocks tile their segment exactly, in a list by address.
//
// Thread-safety: all fields are guarded by the heap's lock, except `device`, which never changes.
#pragma once
#include <cstdint>
#include <cstdlib>
#include <new>
#include <vector>

namespace spillway {

// A request is rounded up to a multiple of this.
inline constexpr uint64_t kUnitBytes = 512;
// Requests up to this live in an arena of their own, so that they do not pin the pages of large ones. 64 KiB
// and 256 KiB pack equally well; the smaller leaves one page-map slot per 64 KiB of a large arena.
inline constexpr uint64_t kSmallBytes = 64 << 10;
// Smallest physical page: the granularity of every GPU so far.
inline constexpr uint64_t kPageBytes = 2 << 20;

// Who else than its own stream uses a block, where else it lies, what else is known of it, as bits.
enum SharedWith : uint8_t {
  kOtherStreams = 1,
  kOtherProcesses = 2,
  kSpilled = 4,     // some of its pages lie in another tier, or are on the way
  kRegistered = 8,  // the program says when it uses it
  kSited = 16,      // it is known which place of the program allocated it
};

enum class BlockState : uint8_t {
  kHole,     // mapped and free
  kVoid,     // no pages behind it
  kLive,     // the program's
  kPending,  // freed, waits for other streams
  kBusy,     // taken out: pages behind it change, or are in another tier for other blocks
};

struct alignas(64) Block {
  uint64_t address;
  uint64_t size;
  // Live and pending: what the program asked for. Hole: order of the last free in it.
  uint64_t tag;
  Block* previous;  // by address; null at the segment's start
  Block* next;
  // Among holes of a bin, among voids of an arena. A live block is in no list: it knows when it was used.
  union {
    Block* bin_next;
    uint64_t touched;  // of the last use, or of the allocation: AccessFrequency
  };
  union {
    Block* bin_previous;
    uint64_t history;  // of the allocation, and reads since: AccessFrequency
  };
  uint16_t arena;
  uint16_t bin;
  uint8_t device;
  BlockState state;
  uint8_t shared;  // SharedWith
  uint8_t segment;

  uint64_t end() const { return address + size; }
};
static_assert(sizeof(Block) == 64);

// Blocks of one device; never returned to the system before the device's end, so that a stale pointer reads a
// block.
class BlockSlab {
 public:
  explicit BlockSlab(uint8_t device) : device_(device) {}
  ~BlockSlab() {
    for (Block* chunk : chunks_) ::operator delete(chunk, std::align_val_t(64));
  }
  BlockSlab(const BlockSlab&) = delete;
  BlockSlab& operator=(const BlockSlab&) = delete;

  Block* take() {
    if (free_ == nullptr) [[unlikely]]
      refill();
    Block* block = free_;
    free_ = block->bin_next;
    block->shared = 0;
    return block;
  }
  // One that is a whole segment of an arena, without a state yet.
  Block* take_whole(uint64_t address, uint64_t size, uint16_t arena) {
    Block* block = take();
    block->address = address;
    block->size = size;
    block->tag = 0;
    block->previous = block->next = nullptr;
    block->arena = arena;
    return block;
  }
  void put(Block* block) {
    block->state = BlockState::kVoid;
    block->size = 0;
    block->bin_next = free_;
    free_ = block;
  }

 private:
  static constexpr int kChunk = 1024;
  [[gnu::noinline]] void refill() {
    auto* chunk = static_cast<Block*>(::operator new(kChunk * sizeof(Block), std::align_val_t(64)));
    chunks_.push_back(chunk);
    for (int i = kChunk - 1; i >= 0; --i) {
      new (&chunk[i]) Block{};
      chunk[i].device = device_;
      put(&chunk[i]);
    }
  }

  uint8_t device_;
  Block* free_ = nullptr;
  std::vector<Block*> chunks_;
};

}  // namespace spillway
