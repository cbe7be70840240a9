// What an engine tells of a sequence.
#pragma once
#include <cstdint>
#include <vector>

#include "trainer/serve/engine/sampler.h"

namespace spillway::trainer::serve {

enum class Finish : uint8_t {
  kNo,
  kStop,       // a token that ends, or a stop that the listener saw
  kLength,     // all tokens that it may have
  kCancelled,  // nobody wants it any more
  kNoMemory,   // it does not fit, even alone
  kBroken      // the model's numbers are none
};

struct TokenEvent {
  int64_t token = 0;
  std::vector<TokenChance> chances;  // its own first; empty unless they were asked for
};

}  // namespace spillway::trainer::serve
