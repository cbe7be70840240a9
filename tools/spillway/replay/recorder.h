// What a replay did, as a history of memory that can be reported.
//
// Thread-safety: none; one thread. Ownership: keeps a reference to the requests. Errors: none. Units: bytes;
// times are those of the recorded program.
#pragma once
#include <cstdint>
#include <map>
#include <tuple>
#include <vector>

#include "tools/spillway/history/history.h"
#include "tools/spillway/replay/input/requests.h"
#include "tools/spillway/report/address_ranges.h"

namespace spillway::tools {

// Whose memory it is, for an allocator that keeps it apart.
struct MemoryOwner {
  uint32_t stream = 0, pool = 0;
  bool small = false;
  auto operator<=>(const MemoryOwner&) const = default;
};

// Told by an allocator of what it does, as it does it.
class PlacementObserver {
 public:
  virtual ~PlacementObserver() = default;
  virtual void memory_taken(const MemoryOwner& owner, uint64_t address, uint64_t bytes) = 0;
  virtual void memory_given_back(const MemoryOwner& owner, uint64_t address, uint64_t bytes) = 0;
  // `bytes`: as the allocator rounded it.
  virtual void allocated(uint32_t block, uint64_t address, uint64_t bytes) = 0;
  virtual void freed(uint32_t block) = 0;
};

class ReplayRecorder final : public PlacementObserver {
 public:
  // `expandable`: how its segments are called.
  ReplayRecorder(const Requests& requests, bool expandable)
      : requests_(requests), expandable_(expandable), blocks_(requests.blocks) {}

  // Before each request, by its place in `Requests::requests`.
  void begin(size_t request);
  void freed_later(uint32_t block);
  // The request that was begun is not served; `free`: what the card had left.
  void failed(uint64_t free);
  void memory_taken(const MemoryOwner& owner, uint64_t address, uint64_t bytes) override;
  void memory_given_back(const MemoryOwner& owner, uint64_t address, uint64_t bytes) override;
  void allocated(uint32_t block, uint64_t address, uint64_t bytes) override;
  void freed(uint32_t block) override;

  DeviceHistory finish();

 private:
  struct Block {
    uint64_t address = 0, bytes = 0, requested = 0;  // no bytes: not live
    uint32_t stream = 0, pool = 0;
    bool pending = false;
  };
  void add(Action action, const MemoryOwner& owner, uint64_t address, uint64_t size, StackId stack);
  void add_of_block(Action action, uint32_t block);
  void add_segment(const MemoryOwner& owner, uint64_t begin, uint64_t end,
                   const std::map<uint64_t, uint32_t>& live);

  const Requests& requests_;
  const bool expandable_;
  size_t request_ = 0, steps_ = 0;
  std::vector<Block> blocks_;
  std::map<MemoryOwner, AddressRanges> memory_;
  DeviceHistory out_;
};

}  // namespace spillway::tools
