// What an observer is told adds up to what the allocator holds; and blocks at a named address.
#include <map>
#include <mutex>
#include <random>
#include <thread>

#include "strategies/ladder/ladder.h"
#include "tests/allocator/simulated.h"

namespace spillway::testing {
namespace {

// Follows the changes of every address and notes the first that cannot be.
class Follower final : public Observer {
 public:
  void observe(Change change, const BlockInfo& block) noexcept override {
    const std::lock_guard guard(mutex_);
    ++told_;
    switch (change) {
      case Change::kAllocated:
        expect(mapped(block.address, block.bytes), "a block on no pages");
        expect(blocks_.emplace(block.address, block.requested_bytes).second, "allocated twice");
        break;
      case Change::kFreeRequested:
        expect(blocks_.erase(block.address) == 1, "freed without being live");
        waiting_[block.address] = block.requested_bytes;
        break;
      case Change::kFreed:
        expect(waiting_.erase(block.address) == 1, "free without having been asked for");
        break;
      case Change::kMapped:
        for (uint64_t at = block.address; at < block.address + block.bytes; at += kPage)
          expect(pages_.emplace(at, block.stream).second, "mapped twice");
        break;
      case Change::kUnmapped:
        for (uint64_t at = block.address; at < block.address + block.bytes; at += kPage)
          expect(pages_.erase(at) == 1, "unmapped twice");
        break;
    }
  }

  void compare(Allocator& allocator) {
    std::vector<BlockInfo> blocks;
    EXPECT_EQ(allocator.blocks(kDevice, &blocks), Status::kOk);
    std::map<uint64_t, uint64_t> live, waiting;
    uint64_t held = 0;
    for (const BlockInfo& block : blocks) {
      held += block.bytes;
      if (block.use == BlockUse::kLive) live[block.address] = block.requested_bytes;
      if (block.use == BlockUse::kPending) waiting[block.address] = block.requested_bytes;
    }
    const std::lock_guard guard(mutex_);
    EXPECT_EQ(broken_, "");
    EXPECT_EQ(live, blocks_);
    EXPECT_EQ(waiting, waiting_);
    EXPECT_EQ(held, pages_.size() * kPage);
  }

  uint64_t told() const { return told_; }

 private:
  void expect(bool holds, const char* text) {
    if (!holds && broken_.empty()) broken_ = text;
  }
  bool mapped(uint64_t address, uint64_t bytes) const {
    for (uint64_t at = address / kPage * kPage; at < address + bytes; at += kPage)
      if (!pages_.contains(at)) return false;
    return true;
  }

  std::mutex mutex_;
  uint64_t told_ = 0;
  std::string broken_;
  std::map<uint64_t, uint64_t> blocks_, waiting_;
  std::map<uint64_t, StreamId> pages_;
};

class Witnessed : public SimulatedDevice {
 protected:
  void SetUp() override {
    SimulatedDevice::SetUp();
    allocator->set_observer(&follower);
  }
  Follower follower;
};

TEST_F(Witnessed, ChangesAddUpToTheBlocks) {
  Ladder ladder(*allocator);
  ladder.add(make_stitch());
  ladder.add(make_release_cache(*allocator));
  allocator->set_handler(&ladder);
  const StreamId side = new_stream();
  std::mt19937_64 random(7);
  std::vector<uint64_t> held;
  for (int step = 0; step < 2000; ++step) {
    const bool take = held.empty() || random() % 5 < 3;
    if (take) {
      const uint64_t bytes = random() % 4 == 0 ? random() % (24 * kMiB) + 1 : random() % (300 * kKiB) + 1;
      uint64_t address = 0;
      if (allocator->allocate(kDevice, {bytes, {}, random() % 3}, &address, nullptr) == Status::kOk)
        held.push_back(address);
    } else {
      std::swap(held[random() % held.size()], held.back());
      if (random() % 3 == 0) {
        launch(side, held.back(), 512, 20);
        EXPECT_EQ(allocator->record_stream(held.back(), side), Status::kOk);
      }
      put(held.back());
      held.pop_back();
    }
    if (step % 300 == 299) allocator->empty_cache(kDevice);
    if (step % 50 == 0) follower.compare(*allocator);
  }
  for (const uint64_t address : held) put(address);
  allocator->empty_cache(kDevice);
  follower.compare(*allocator);
  EXPECT_GT(memory().rescued, 0u) << "pages were stitched too";
  EXPECT_GT(follower.told(), 2000u);
  allocator->set_handler(nullptr);
}

TEST_F(Witnessed, ThreadsKeepEachAddressInOrder) {
  std::vector<std::thread> threads;
  for (int index = 0; index < 4; ++index) {
    threads.emplace_back([&, index] {
      std::mt19937_64 random(index);
      std::vector<uint64_t> held;
      for (int step = 0; step < 4000; ++step) {
        uint64_t address = 0;
        const Request request{random() % (200 * kKiB) + 1, {}, 0};
        if (held.size() < 20 && allocator->allocate(kDevice, request, &address, nullptr) == Status::kOk) {
          held.push_back(address);
        } else {
          std::swap(held[random() % held.size()], held.back());
          EXPECT_EQ(allocator->free(held.back()), Status::kOk);
          held.pop_back();
        }
      }
      for (const uint64_t left : held) EXPECT_EQ(allocator->free(left), Status::kOk);
    });
  }
  for (std::thread& thread : threads) thread.join();
  follower.compare(*allocator);
  EXPECT_GT(follower.told(), 20000u);
}

TEST_F(Witnessed, NobodyIsToldAfterwards) {
  put(get(kMiB));
  EXPECT_EQ(follower.told(), 4u) << "pages, block, and both ends of its free";
  allocator->set_observer(nullptr);
  put(get(kMiB));
  EXPECT_EQ(follower.told(), 4u);
}

class NamedAddress : public SimulatedDevice {
 protected:
  Status get_at(uint64_t address, uint64_t bytes, uint64_t pool = 3, StreamId stream = {}) {
    const Status result = allocator->allocate_at(kDevice, {bytes, stream, pool}, address);
    check();
    return result;
  }
  uint64_t get_from(uint64_t pool, uint64_t bytes) {
    uint64_t address = 0;
    EXPECT_EQ(allocator->allocate(kDevice, {bytes, {}, pool}, &address, &failure), Status::kOk);
    return address;
  }
};

TEST_F(NamedAddress, IsServedFromTheMiddleOfAHole) {
  constexpr uint64_t kPiece = 128 * kKiB;
  const uint64_t first = get_from(3, 8 * kMiB);
  put(first);
  EXPECT_EQ(get_at(first + 3 * kMiB, kPiece - 24), Status::kOk);
  EXPECT_EQ(get_at(first + 3 * kMiB, kPiece), Status::kNotFound) << "it is taken";
  EXPECT_EQ(get_at(first + 3 * kMiB + kPiece / 2, kPiece), Status::kNotFound) << "a part of it too";
  EXPECT_EQ(get_at(first + 3 * kMiB - kPiece, kPiece), Status::kOk);
  EXPECT_EQ(get_at(first, 3 * kMiB), Status::kNotFound) << "its last bytes are taken";
  EXPECT_EQ(get_at(first, 3 * kMiB - kPiece), Status::kOk);
  EXPECT_EQ(get_at(first + 3 * kMiB + kPiece, 5 * kMiB - kPiece), Status::kOk) << "up to the end";
  EXPECT_EQ(memory().live, 8 * kMiB - 24) << "what was asked for";
  for (const uint64_t at : {uint64_t{0}, 3 * kMiB - kPiece, 3 * kMiB, 3 * kMiB + kPiece}) put(first + at);
  EXPECT_EQ(get_from(3, 8 * kMiB), first) << "one hole again";
}

TEST_F(NamedAddress, IsServedInTheDefaultPoolToo) {
  const uint64_t first = get(8 * kMiB);
  const uint64_t behind = get(4 * kMiB);
  EXPECT_EQ(get_at(first, 4 * kMiB, 0), Status::kNotFound) << "it is live";
  put(first);
  EXPECT_EQ(get_at(first + 2 * kMiB, 4 * kMiB, 0), Status::kOk);
  EXPECT_EQ(get_at(behind, 4 * kMiB, 0), Status::kNotFound);
  put(first + 2 * kMiB);
  allocator->empty_cache(kDevice);
  EXPECT_EQ(get_at(first, 4 * kMiB, 0), Status::kNotFound) << "its pages are the driver's again";
  put(behind);
}

TEST_F(NamedAddress, KeepsSmallBlocksApart) {
  const uint64_t large = get_from(3, 8 * kMiB), small = get_from(3, 32 * kKiB);
  put(large);
  put(small);
  EXPECT_EQ(get_at(large, 1000), Status::kOk);
  EXPECT_EQ(get_at(large + 1024, 1000), Status::kNotFound) << "among large blocks it takes more";
  EXPECT_EQ(get_at(small + 512, 100), Status::kOk);
  EXPECT_EQ(get_at(small + 1024, 100), Status::kOk) << "among small ones it does not";
  EXPECT_EQ(get_at(small, 512), Status::kOk);
}

TEST_F(NamedAddress, BelongsToThePoolAndStream) {
  const uint64_t first = get_from(3, 8 * kMiB);
  put(first);
  EXPECT_EQ(get_at(first, kMiB, 4), Status::kNotFound);
  EXPECT_EQ(get_at(first, kMiB, 3, new_stream()), Status::kNotFound);
  EXPECT_EQ(get_at(first, kMiB, 0), Status::kNotFound) << "not in the default pool";
  EXPECT_EQ(get_at(first + 1, kMiB), Status::kInvalid);
  EXPECT_EQ(get_at(first + 7 * kMiB, 2 * kMiB), Status::kNotFound) << "it would have to grow";
  EXPECT_EQ(get_at(0, kMiB), Status::kNotFound);
  EXPECT_EQ(get_at(first, UINT64_MAX), Status::kNotFound);
}

}  // namespace
}  // namespace spillway::testing
