// One ring of a trace file as a sequence of whole records, whether its writer is dead, alive, or the bytes
// are damaged.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "trace/byte_source.h"
#include "trace/layout.h"

namespace spillway::trace {

struct RingContents {
  std::vector<Record> records;  // by stamp
  uint64_t overwritten = 0;
  uint64_t torn = 0;
  std::string damage;  // "" or the first thing wrong, with its byte offset
};

// REQUIRES: shape.valid(), ring < shape.rings, and the directory lies inside the file.
RingContents read_ring(const ByteSource& source, const Shape& shape, uint32_t ring);

}  // namespace spillway::trace
