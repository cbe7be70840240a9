// What the allocator is told of the program's streams.
//
// Thread-safety: any thread; no lock of the allocator's may be held. Errors: none.
#pragma once
#include <cstdint>

#include "allocator/allocator.h"

namespace spillway {

// See StreamKnowledge. Before the first request.
void follow_streams(Allocator& allocator, uint32_t (*captures)(), int (*lasts)(uint64_t stream)) noexcept;
// The program is about to destroy the stream; from now on the driver is asked nothing about it. Blocks of it
// that are free serve another stream once what was queued is over.
void stream_ends(Allocator& allocator, StreamId stream) noexcept;

// Now and then, before the work that uses the block is queued: a mark on its stream, by which a wait for the
// devices sees that they get on. And how many marks have passed on all of them.
void mark_progress(Allocator& allocator, uint64_t address) noexcept;
uint64_t passed_marks(Allocator& allocator) noexcept;

}  // namespace spillway
