// Which place of the program a block came from whose place was not taken: those of its size whose place was
// taken share out the others, in proportion to how many blocks each stands for. Where a sample is of every
// allocation alike, so are the shares.
//
// Thread-safety: none. Ownership: plain values. Errors: std::bad_alloc. Units: bytes.
#pragma once
#include <algorithm>
#include <bit>
#include <cstdint>
#include <optional>
#include <unordered_map>
#include <utility>
#include <vector>

namespace spillway {

class SitesBySize {
 public:
  // The place of a block was taken, or it is known that it has none (0). It stands for `blocks` of its size.
  // REQUIRES: nothing was dealt yet.
  void know(uint64_t bytes, uint64_t site, double blocks) {
    exactly_[bytes].know(site, blocks);
    about_[class_of(bytes)].know(site, blocks);
  }
  // The place of one block more (0: it has none), by blocks of exactly its size where enough are known, else
  // of about its size. Nothing: none is known.
  std::optional<uint64_t> deal(uint64_t bytes) {
    const auto exactly = exactly_.find(bytes);
    if (exactly != exactly_.end() && exactly->second.known() >= kEnough) return exactly->second.deal();
    const uint64_t own = class_of(bytes);
    for (const uint64_t nearest : {own, own - 1, own + 1})
      if (const auto about = about_.find(nearest); about != about_.end()) return about->second.deal();
    return std::nullopt;
  }

 private:
  // A cache that is copied as it grows has new sizes all along, of which hardly two blocks are known.
  static constexpr uint64_t kEnough = 4;

  struct Share {
    uint64_t site = 0;
    double stands_for = 0, has = 0;  // blocks
    // When its next block is due, as seats of a parliament are (Webster): a share of twice as many has its
    // next in half of the time.
    double due() const { return (has + 0.5) / stands_for; }
  };
  class Shares {
   public:
    void know(uint64_t site, double blocks) {
      const auto [number, is_new] = numbers_.try_emplace(site, shares_.size());
      if (is_new) shares_.push_back({site});
      Share& share = shares_[number->second];
      share.stands_for += blocks, share.has += 1;
      ++known_;
    }
    uint64_t known() const { return known_; }
    uint64_t deal() {
      if (!in_turn_) std::ranges::make_heap(shares_, is_later);
      in_turn_ = true;
      std::ranges::pop_heap(shares_, is_later);
      Share& next = shares_.back();
      next.has += 1;
      const uint64_t site = next.site;
      std::ranges::push_heap(shares_, is_later);
      return site;
    }

   private:
    static bool is_later(const Share& one, const Share& other) {
      return std::pair(one.due(), one.site) > std::pair(other.due(), other.site);
    }

    std::vector<Share> shares_;                     // in turn: a heap
    std::unordered_map<uint64_t, size_t> numbers_;  // by site, until they are
    uint64_t known_ = 0;
    bool in_turn_ = false;
  };

  // Four for each doubling.
  static uint64_t class_of(uint64_t bytes) {
    const auto width = static_cast<uint64_t>(std::bit_width(bytes));
    return width < 3 ? bytes : width << 2 | (bytes >> (width - 3) & 3);
  }

  std::unordered_map<uint64_t, Shares> exactly_, about_;
};

}  // namespace spillway
