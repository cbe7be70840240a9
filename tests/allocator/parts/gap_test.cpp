// Where a request is placed, on tilings made at random: as good as the best of all places, each counted page
// by page.
#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <set>

#include "allocator/tiling/gap.h"
#include "allocator/tiling/tiling.h"
#include "tests/allocator/parts/parts.h"

namespace spillway {
namespace {

constexpr uint64_t kPages = 96, kUnit = 64 << 10;  // of the segment; of a request
constexpr size_t kMostBlocks = 30;

// Of a place, counted page by page.
struct Needs {
  uint64_t new_bytes = 0, idle_bytes = 0;
  bool takes_kept = false;
};

class GapTest : public ::testing::TestWithParam<uint64_t> {
 protected:
  GapTest() : random_(GetParam()) { EXPECT_TRUE(arena().add_segment({kBase, kBase + kPages * kPage})); }

  // Of every second seed a private pool's, which keeps its pages.
  Arena& arena() { return tiling_.arena_for(StreamId{1}, GetParam() % 2 == 0 ? 7 : 0, false); }
  uint64_t up_to(uint64_t most) { return std::uniform_int_distribution<uint64_t>(1, most)(random_); }

  std::vector<Block*> blocks() {
    std::vector<Block*> all;
    for (Block* block = arena().segments().front().first; block != nullptr; block = block->next)
      all.push_back(block);
    return all;
  }
  Block* any(BlockState state) {
    std::vector<Block*> found = blocks();
    std::erase_if(found, [&](const Block* block) { return block->state != state; });
    return found.empty() ? nullptr : found[up_to(found.size()) - 1];
  }

  void allocate() {
    const uint64_t size = up_to(8 * kPage / kUnit) * kUnit;
    if (Block* hole = arena().best(size)) return void(arena().take(hole, size, size));
    std::vector<AddressRange> voids;
    const std::optional<Placement> place = arena().plan(size, kPages * kPage, 0);
    if (!place) return;
    Block* claim = arena().claim(*place, &voids);
    for (AddressRange range : voids)
      while (range.begin < range.end) {
        const uint64_t bytes = std::min(range.bytes(), up_to(3) * kPage);
        arena().set_pages({range.begin, range.begin + bytes}, ++last_);
        range.begin += bytes;
      }
    arena().finish(claim, place->address, size, size);
  }
  void give_pages() {
    Block* hole = any(BlockState::kHole);
    const AddressRange whole = hole == nullptr ? AddressRange{} : arena().whole_handles(range_of(hole));
    if (whole.bytes() == 0) return;
    Block* busy =
        arena().claim_pages(hole, last_covering(arena(), whole, up_to(whole.bytes() / kPage) * kPage));
    arena().set_pages(range_of(busy), 0);
    arena().restore(busy, 0);
  }
  void change() {
    const uint64_t kind = up_to(5);
    if (kind <= 2) return give_pages();
    Block* live = any(BlockState::kLive);
    if (kind == 3 && live != nullptr) arena().put_hole(live, 0);
    if (kind > 3 && blocks().size() < kMostBlocks) allocate();
  }

  std::vector<Gap> gaps() {
    std::vector<Gap> all;
    for (const Block* block : blocks()) {
      if (!is_free(block)) continue;
      if (block->previous == nullptr || !is_free(block->previous)) all.push_back({block, block});
      all.back().last = block;
    }
    return all;
  }
  std::vector<uint64_t> places_in(const Gap& gap, uint64_t size) {
    std::vector<uint64_t> places{gap.first->address};
    if (!gap.is_open()) places.push_back(gap.last->end() - size);
    for (const Block* block = gap.first; block != gap.last->next; block = block->next) {
      places.push_back(block->address);
      if (block->state == BlockState::kHole) places.push_back(block->end() - size);
    }
    std::erase_if(
        places, [&](uint64_t place) { return place < gap.first->address || place + size > gap.last->end(); });
    return places;
  }
  Needs counted(const Gap& gap, uint64_t address, uint64_t size, uint64_t kept) {
    Needs needs;
    std::set<uint64_t> touched;  // the first address of each handle
    for (const Block* block = gap.first; block != gap.last->next; block = block->next) {
      const bool is_void = block->state == BlockState::kVoid;
      needs.takes_kept |=
          !is_void && block->size >= kept && block->address < address + size && block->end() > address;
      const AddressRange whole = is_void ? range_of(block) : arena().whole_handles(range_of(block));
      for (uint64_t page = address / kPage * kPage; page < address + size; page += kPage) {
        if (page < whole.begin || page >= whole.end) continue;
        if (is_void)
          needs.new_bytes += kPage;
        else if (arena().gives_pages() && touched.insert(arena().handle_at(page).begin).second)
          needs.idle_bytes += arena().handle_at(page).bytes();
      }
    }
    return needs;
  }

  // The fewest new pages, in the tightest gap.
  using Rank = std::pair<uint64_t, uint64_t>;
  static uint64_t width(const Gap& gap) { return gap.is_open() ? UINT64_MAX : gap.range().bytes(); }

  std::optional<Rank> best_of_all(uint64_t size, uint64_t have, uint64_t idle, uint64_t kept) {
    std::optional<Rank> best;
    for (const Gap& gap : gaps())
      for (const uint64_t address : places_in(gap, size)) {
        const std::optional<Rank> rank = rank_of(gap, address, size, have, idle, kept);
        if (rank && (!best || *rank < *best)) best = rank;
      }
    return best;
  }
  // Nothing, where it is no place for the request.
  std::optional<Rank> rank_of(const Gap& gap, uint64_t address, uint64_t size, uint64_t have, uint64_t idle,
                              uint64_t kept) {
    const auto [new_bytes, idle_bytes, takes_kept] = counted(gap, address, size, kept);
    if (new_bytes == 0 || takes_kept) return std::nullopt;
    if (new_bytes > have && new_bytes + idle_bytes > have + idle) return std::nullopt;
    return Rank{new_bytes, width(gap)};
  }

  void compare(uint64_t size, uint64_t have, uint64_t idle, uint64_t kept) {
    const std::optional<Rank> best = best_of_all(size, have, idle, kept);
    const std::optional<Placement> found = arena().plan(size, have, idle, kept);
    ASSERT_EQ(found.has_value(), best.has_value());
    if (!found) return;
    ++placed_;
    const std::vector<Gap> all = gaps();
    const auto gap = std::ranges::find_if(all, [&](const Gap& each) {
      return found->address >= each.range().begin && found->address + size <= each.range().end;
    });
    ASSERT_NE(gap, all.end());
    const Needs needs = counted(*gap, found->address, size, kept);
    EXPECT_EQ((Rank{found->need_bytes, width(*gap)}), *best);
    EXPECT_EQ(found->need_bytes, needs.new_bytes);
    EXPECT_EQ(found->idle_bytes, needs.idle_bytes);
    EXPECT_FALSE(needs.takes_kept);
    EXPECT_EQ(found->address, first_of(*gap, size, have, idle, kept, *best));
    compare_claim(*gap, *found, size);
  }
  // Of the places in the gap that are as good as the best.
  uint64_t first_of(const Gap& gap, uint64_t size, uint64_t have, uint64_t idle, uint64_t kept,
                    const Rank& best) {
    for (const uint64_t address : places_in(gap, size))
      if (rank_of(gap, address, size, have, idle, kept) == best) return address;
    return 0;
  }
  // The place, and the whole pages under it that are parts of voids.
  static void compare_claim(const Gap& gap, const Placement& found, uint64_t size) {
    const uint64_t end = found.address + size;
    AddressRange claim{found.address, end};
    for (const Block* block = gap.first; block != gap.last->next; block = block->next) {
      if (block->state != BlockState::kVoid) continue;
      const uint64_t first = std::max(block->address, found.address / kPage * kPage);
      const uint64_t last = std::min(block->end(), (end + kPage - 1) / kPage * kPage);
      if (first < last) claim = {std::min(claim.begin, first), std::max(claim.end, last)};
    }
    EXPECT_EQ(found.claim.begin, claim.begin);
    EXPECT_EQ(found.claim.end, claim.end);
  }

  uint64_t longest_of_all(uint64_t have) {
    uint64_t most = 0;
    for (const Gap& gap : gaps()) {
      for (uint64_t size = gap.range().bytes(); size > most; size -= kUnit)
        for (const Block* block = gap.first; block != gap.last->next; block = block->next)
          if (fits_at(gap, block->address, size, have) || fits_at(gap, block->end() - size, size, have))
            most = size;
    }
    return most;
  }
  bool fits_at(const Gap& gap, uint64_t address, uint64_t size, uint64_t have) {
    if (address < gap.range().begin || address + size > gap.range().end) return false;
    return counted(gap, address, size, UINT64_MAX).new_bytes <= have;
  }

  StreamKnowledge streams_;
  Tiling tiling_{0, kPage, streams_};
  std::mt19937_64 random_;
  CUmemGenericAllocationHandle last_ = 0;
  int placed_ = 0;
};
INSTANTIATE_TEST_SUITE_P(Seeds, GapTest, ::testing::Range(uint64_t{1}, uint64_t{13}));

TEST_P(GapTest, ARequestIsPlacedWhereItNeedsTheFewestPages) {
  for (int i = 0; i < 4000; ++i) {
    change();
    Recount count;
    ASSERT_EQ(arena().check(&count), "");
    const uint64_t size = up_to(20 * kPage / kUnit) * kUnit;
    if (arena().best(size) != nullptr) continue;  // needs no new page
    ASSERT_NO_FATAL_FAILURE(compare(size, up_to(24) * kPage, 0, UINT64_MAX));
    ASSERT_NO_FATAL_FAILURE(compare(size, up_to(6) * kPage, up_to(24) * kPage, up_to(8) * kPage));
  }
  EXPECT_GT(placed_, 500);
}

TEST_P(GapTest, TheLargestRequestThatFitsIsThatOfAllPlaces) {
  for (int i = 0; i < 60; ++i) {
    change();
    const uint64_t have = up_to(12) * kPage;
    EXPECT_EQ(arena().largest(have), longest_of_all(have));
  }
}

}  // namespace
}  // namespace spillway
