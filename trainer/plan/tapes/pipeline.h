// What devices have alive at most while several micro-batches are under way: the schedule of
// trainer/step/micro_batches/pipeline.h over the pieces of a dry run.
//
// Thread-safety: pure. Ownership: none. Errors: none. Units: bytes.
#pragma once
#include "trainer/plan/tapes/tape.h"

namespace spillway::trainer {

// By device, of `count` micro-batches, of which `most` are under way at a time. Behind the last piece nothing
// is left.
std::vector<uint64_t> peaks_under_way(const std::vector<Memory::Piece>& pieces, uint32_t count,
                                      uint32_t most);

}  // namespace spillway::trainer
