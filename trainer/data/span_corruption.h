// Span corruption, the task that T5 learns from plain text: random spans are taken out of the input, and the
// target is what they were. Of Raffel et al. (2020), section 3.1.4; the sizes are those of `span_sizes`.
//
// Thread-safety: pure function. Errors: none.
#pragma once
#include <cstdint>
#include <span>

#include "spillway/trainer/plan/architecture.h"

namespace spillway::trainer {

// Token ids as ByT5's: a byte is three more than itself. The sentinels are the last ids, the first span's
// highest.
inline constexpr int64_t kEndOfSequence = 1, kFirstByte = 3;
constexpr int64_t sentinel(uint32_t vocabulary, uint32_t span) {
  return int64_t{vocabulary} - 1 - span;
}

// Writes the input, and behind it the target, of `text`, which holds `span_sizes(model.context).raw_tokens`
// bytes. `row` holds context + target_tokens ids. Equal seeds choose equal spans.
void corrupt_spans(const Architecture& model, std::span<const uint8_t> text, uint64_t seed,
                   std::span<int64_t> row);

}  // namespace spillway::trainer
