// A trace file taken apart, and put together again with checks and stamps that fit: what a fuzzer changes is
// then believed, and reaches what lies behind the checks.
#pragma once
#include <string>
#include <vector>

#include "trace/layout.h"

namespace spillway::fuzz {

using Bytes = std::vector<uint8_t>;

struct TraceText {
  trace::SideType type = trace::SideType::kName;
  uint32_t number = 1;
  std::string text;
};

struct TraceRing {
  uint64_t lost = 0;  // records that it held before these
  uint32_t owner = 0;
  std::vector<trace::Record> records;  // oldest first
};

struct TraceParts {
  trace::Header header;
  std::vector<TraceText> texts;
  std::vector<TraceRing> rings;
};

// Whatever the bytes are; a shape that is damaged or large becomes a small one.
TraceParts take_apart(const uint8_t* data, size_t size);
Bytes put_together(const TraceParts& parts);
void repair_header(uint8_t* data, size_t size);

}  // namespace spillway::fuzz
