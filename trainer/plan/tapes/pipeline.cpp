#include "trainer/plan/tapes/pipeline.h"

#include <algorithm>
#include <deque>

namespace spillway::trainer {
namespace {

class UnderWay {
 public:
  explicit UnderWay(const std::vector<Memory::Piece>& pieces)
      : pieces_(pieces), now_(pieces[0].peak.size()), peaks_(now_.size()) {}

  uint32_t count() const { return uint32_t(next_.size()); }
  void begin() { next_.push_back(0); }
  // Each does its next piece, the one in front first.
  void advance() {
    for (size_t& next : next_) pass(pieces_[next++]);
  }
  void end_first() {
    if (next_.front() == pieces_.size()) next_.pop_front();
  }
  const std::vector<uint64_t>& peaks() const { return peaks_; }

 private:
  void pass(const Memory::Piece& piece) {
    const bool is_first = &piece == pieces_.data(), is_last = &piece == &pieces_.back();
    for (size_t device = 0; device < now_.size(); ++device) {
      if (!is_first) now_[device] -= (&piece - 1)->after[device];
      peaks_[device] = std::max(peaks_[device], now_[device] + piece.peak[device]);
      if (!is_last) now_[device] += piece.after[device];
    }
  }

  const std::vector<Memory::Piece>& pieces_;
  std::deque<size_t> next_;  // pieces, of those under way
  std::vector<uint64_t> now_, peaks_;
};

}  // namespace

std::vector<uint64_t> peaks_under_way(const std::vector<Memory::Piece>& pieces, uint32_t count,
                                      uint32_t most) {
  // A slot has a piece that computes and one that hands over. Behind twice as many micro-batches as may be
  // under way all repeats itself.
  const auto slots = uint32_t(pieces.size() + 1) / 2;
  count = std::min(count, 2 * std::min(most, slots) + 1);
  UnderWay under_way(pieces);
  for (uint32_t begun = 0; begun < count || under_way.count() > 0;) {
    if (begun < count && under_way.count() < most) under_way.begin(), ++begun;
    under_way.advance();
    under_way.end_first();
    under_way.advance();
  }
  return under_way.peaks();
}

}  // namespace spillway::trainer
