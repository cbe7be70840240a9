// One ring of a trace file as a sequence of whole records, whether its writer is dead, alive, or the bytes
// are damaged.
#pragma once
#include <cstdint>
#include <string>

#include "trace/byte_source.h"
#include "trace/layout.h"
#include "trace/record_list.h"

namespace spillway::trace {

struct RingState {
  uint64_t overwritten = 0;
  uint64_t torn = 0;
  std::string damage;  // "" or the first thing wrong, with its byte offset
};

// Puts the ring's records behind those of `out`, by stamp.
// REQUIRES: shape.valid(), ring < shape.rings, and the directory lies inside the file.
RingState read_ring(const ByteSource& source, const Shape& shape, uint32_t ring, RecordList* out);

}  // namespace spillway::trace
