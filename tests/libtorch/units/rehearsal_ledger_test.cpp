// What `spillway rehearse` says of a device's peak: the ledger's figures beside those of a model that copies
// everything at each new peak.
#include "libtorch/rehearsal/site_table.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <iterator>
#include <map>
#include <random>
#include <vector>

namespace spillway::rehearsal {
namespace {

using ::testing::ElementsAre;

// One allocator that tells the ledger, with a copy of what each site held at the highest.
class Model {
 public:
  void allocate(uint64_t address, uint64_t bytes, Site site) {
    look();
    ledger.allocated(address, bytes, 0, site, levels());
    blocks_[address] = {bytes, ++allocations_, site};
    live_ += bytes;
  }
  void free(uint64_t address) {
    look();
    live_ -= blocks_.at(address).bytes;
    blocks_.erase(address);
    ledger.freed(address, levels());
  }
  void classify(uint64_t address, Kind kind) {
    look();
    ledger.observe(levels());
    ledger.classify(address, kind);
    Block& block = blocks_.at(address);
    block.kind = kind;
    if (const auto then = blocks_at_peak_.find(address);
        then != blocks_at_peak_.end() && then->second.ordinal == block.ordinal)
      then->second.kind = kind;
  }
  std::array<uint64_t, kKinds> kinds_at_peak() const {
    std::array<uint64_t, kKinds> bytes{};
    for (const auto& [address, block] : blocks_at_peak_)
      bytes[static_cast<size_t>(block.kind)] += block.bytes;
    return bytes;
  }
  // As at the end of a run.
  void end() {
    look();
    ledger.observe(levels());
  }
  uint64_t address_at(size_t index) const {
    return std::next(blocks_.begin(), static_cast<long>(index))->first;
  }
  bool holds(uint64_t address) const { return blocks_.contains(address); }
  size_t blocks() const { return blocks_.size(); }
  const std::vector<Holding>& at_peak() const { return at_peak_; }
  uint64_t peak() const { return peak_; }

  Ledger ledger;

 private:
  struct Block {
    uint64_t bytes = 0, ordinal = 0;
    Site site = 0;
    Kind kind = Kind::kOther;
  };
  Levels levels() const { return {.allocated = live_, .reserved = 2 * live_}; }
  void look() {
    if (live_ <= peak_) return;
    peak_ = live_;
    blocks_at_peak_ = blocks_;
    std::map<Site, Holding> by_site;
    for (const auto& [address, block] : blocks_) {
      Holding& holding = by_site[block.site];
      holding = {block.site, holding.bytes + block.bytes, holding.blocks + 1};
    }
    at_peak_.clear();
    for (const auto& [site, holding] : by_site) at_peak_.push_back(holding);
    std::ranges::sort(at_peak_, [](const Holding& a, const Holding& b) {
      return a.bytes != b.bytes ? a.bytes > b.bytes : a.site < b.site;
    });
  }

  std::map<uint64_t, Block> blocks_, blocks_at_peak_;
  std::vector<Holding> at_peak_;
  uint64_t live_ = 0, peak_ = 0, allocations_ = 0;
};

TEST(RehearsalLedger, KnowsWhatEachSiteHeldAtThePeak) {
  std::mt19937_64 random(7);
  for (int run = 0; run < 20; ++run) {
    Model model;
    for (uint64_t event = 1; event <= 2'000; ++event) {
      // Grows at first, then goes up and down.
      if (model.blocks() == 0 || random() % 100 < (event < 500 ? 70 : 50))
        model.allocate(event, 1 + random() % 1'000, static_cast<Site>(random() % 40));
      else
        model.free(model.address_at(random() % model.blocks()));
      if (event % 97 != 0) continue;
      model.end();
      ASSERT_EQ(model.ledger.peak_allocated(), model.peak());
      ASSERT_EQ(model.ledger.held_at_peak(), model.at_peak()) << "run " << run << ", event " << event;
    }
  }
}

TEST(RehearsalLedger, KnowsWhatThePeakWasForAlsoWhenThatIsToldLater) {
  std::mt19937_64 random(8);
  for (int run = 0; run < 20; ++run) {
    Model model;
    for (uint64_t event = 1; event <= 2'000; ++event) {
      // Addresses come again, as an allocator's do.
      const uint64_t address = 1 + random() % 300;
      if (random() % 5 == 0 && model.blocks() > 0)
        model.classify(model.address_at(random() % model.blocks()), static_cast<Kind>(random() % kKinds));
      else if (model.holds(address))
        model.free(address);
      else
        model.allocate(address, 1 + random() % 1'000, static_cast<Site>(random() % 40));
      if (event % 97 != 0) continue;
      model.end();
      ASSERT_EQ(model.ledger.bytes_by_kind_at_peak(), model.kinds_at_peak())
          << "run " << run << ", event " << event;
    }
  }
  Ledger empty;
  empty.classify(10, Kind::kParameter);
  EXPECT_THAT(empty.bytes_by_kind_at_peak(), ElementsAre(0, 0, 0, 0));
}

TEST(RehearsalLedger, KnowsWhatIsHeldNow) {
  Model model;
  model.allocate(10, 100, 3);
  model.allocate(20, 50, 1);
  model.allocate(30, 60, 1);
  model.free(10);
  EXPECT_THAT(model.ledger.held_now(), ElementsAre(Holding{1, 110, 2}));
  EXPECT_EQ(model.ledger.live_bytes(), 110u);
  EXPECT_EQ(model.ledger.events(), 4u);
}

// PyTorch gives some blocks back on ways that tell no event; their addresses come again.
TEST(RehearsalLedger, AnAddressThatComesAgainEndsWhatWasThere) {
  Model model;
  model.allocate(10, 100, 3);
  model.allocate(10, 40, 5);
  EXPECT_THAT(model.ledger.held_now(), ElementsAre(Holding{5, 40, 1}));
  EXPECT_EQ(model.ledger.freed(10, {}), 2u) << "the second allocation";
  EXPECT_EQ(model.ledger.freed(10, {}), 0u) << "not known any more";
  EXPECT_EQ(model.ledger.freed(99, {}), 0u);
}

uint64_t hash_of(const std::vector<uint64_t>& freed, bool between, uint64_t base = 0) {
  Ledger ledger;
  for (uint64_t address : {1, 2, 3}) ledger.allocated(base + address, 8 * address, 0, 0, {});
  for (const uint64_t address : freed) {
    ledger.freed(base + address, {});
    if (between) ledger.segment(true, 2 << 20, {});
  }
  return ledger.stream_hash();
}

TEST(RehearsalLedger, EqualStreamsHashAlikeWhereverTheyLie) {
  EXPECT_EQ(hash_of({1, 2, 3}, false), hash_of({1, 2, 3}, false, 1'000));
  EXPECT_EQ(hash_of({1, 2, 3}, false), hash_of({3, 1, 2}, false)) << "frees with nothing between them";
  EXPECT_NE(hash_of({1, 2, 3}, true), hash_of({3, 1, 2}, true));
  EXPECT_NE(hash_of({1, 2}, false), hash_of({1, 3}, false));
  EXPECT_NE(hash_of({1}, false), hash_of({1, 2}, false));
}

TEST(RehearsalLedger, CountsRetriesOverTheProgramsResets) {
  Ledger ledger;
  for (const uint64_t retries : {3, 5, 1, 1}) ledger.observe({.retries = retries});
  EXPECT_EQ(ledger.retries(), 6u);
}

TEST(RehearsalLedger, KeepsThePeakOfEachStep) {
  Model model;
  model.allocate(10, 100, 0);
  model.allocate(20, 50, 0);
  model.free(20);
  model.ledger.step_ended({.allocated = 100, .reserved = 200});
  model.allocate(30, 20, 0);
  model.ledger.step_ended({.allocated = 120, .reserved = 240});
  ASSERT_EQ(model.ledger.steps().size(), 2u);
  EXPECT_EQ(model.ledger.steps()[0].allocated, 150u);
  EXPECT_EQ(model.ledger.steps()[0].last_event, 3u);
  EXPECT_EQ(model.ledger.steps()[1].allocated, 120u);
  EXPECT_EQ(model.ledger.peak_step(), 1u);
}

}  // namespace
}  // namespace spillway::rehearsal
