// Span corruption, the task that T5 learns from plain text: random spans are taken out of the input, and the
// target is what they were. Of Raffel et al. (2020), section 3.1.4; the sizes are those of `span_sizes`.
//
// Thread-safety: pure functions. Errors: none.
#pragma once
#include <cstdint>
#include <span>
#include <vector>

namespace spillway::trainer {

// The ids that are no text.
struct SpanMarks {
  int64_t end = 0;                 // of a sequence
  std::vector<int64_t> sentinels;  // a span each
};

// Token ids as ByT5's: a byte is three more than itself. The sentinels are the last ids, the first span's
// highest.
inline constexpr int64_t kEndOfSequence = 1, kFirstByte = 3;
SpanMarks byte_marks(uint32_t vocabulary, uint32_t spans);

// Writes the input of `context` ids, and behind it the target, of `text`, which holds
// `span_sizes(context).raw_tokens` ids. `row` holds context + target_tokens ids. Equal seeds choose equal
// spans. REQUIRES: a sentinel for each span.
void corrupt_spans(uint32_t context, const SpanMarks& marks, std::span<const int64_t> text, uint64_t seed,
                   std::span<int64_t> row);

}  // namespace spillway::trainer
