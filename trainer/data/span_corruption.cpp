#include "trainer/data/span_corruption.h"

#include <vector>

#include "trainer/data/mix.h"
#include "trainer/plan/architecture.h"

namespace spillway::trainer {
namespace {

// `count` lengths of at least 1 whose sum is `total`; every such choice is equally likely.
std::vector<uint32_t> lengths(uint32_t total, uint32_t count, uint64_t seed) {
  std::vector<uint32_t> parts;
  uint32_t length = 0;
  for (uint32_t i = 0; i < total; ++i) {
    ++length;
    // Of the places that are left for a cut, as many are chosen as cuts are left.
    const uint64_t places = total - 1 - i, cuts = count - 1 - parts.size();
    if (places == 0 || mix(seed, i) % places < cuts) parts.push_back(length), length = 0;
  }
  return parts;
}

class Writer {
 public:
  explicit Writer(std::span<int64_t> to) : to_(to) {}
  void token(int64_t id) { to_[next_++] = id; }
  void tokens(std::span<const int64_t> ids) {
    for (const int64_t id : ids) token(id);
  }

 private:
  std::span<int64_t> to_;
  size_t next_ = 0;
};

}  // namespace

SpanMarks byte_marks(uint32_t vocabulary, uint32_t spans) {
  SpanMarks marks{.end = kEndOfSequence, .sentinels = {}};
  marks.sentinels.reserve(spans);
  for (uint32_t span = 0; span < spans; ++span) marks.sentinels.push_back(int64_t{vocabulary} - 1 - span);
  return marks;
}

void corrupt_spans(uint32_t context, const SpanMarks& marks, std::span<const int64_t> text, uint64_t seed,
                   std::span<int64_t> row) {
  const SpanSizes sizes = span_sizes(context);
  const auto noise = lengths(sizes.noise_tokens, sizes.spans, mix(seed, 0));
  const auto kept = lengths(sizes.raw_tokens - sizes.noise_tokens, sizes.spans, mix(seed, 1));
  Writer input(row.first(context)), target(row.subspan(context));
  size_t next = 0;
  for (uint32_t span = 0; span < sizes.spans; ++span) {
    input.tokens(text.subspan(next, kept[span]));
    input.token(marks.sentinels[span]);
    target.token(marks.sentinels[span]);
    target.tokens(text.subspan(next + kept[span], noise[span]));
    next += kept[span] + noise[span];
  }
  input.token(marks.end);
  target.token(marks.end);
}

}  // namespace spillway::trainer
