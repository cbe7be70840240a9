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
// Whether any stream of the process is being captured; false where nobody counts them.
bool anything_captures(Allocator& allocator) noexcept;

// `begin` is called once, on a thread that allocates, as soon as half of a device's limit is held or a
// request failed: from then on `mark_progress` helps. Null: it is not called.
void ask_for_marks(Allocator& allocator, void (*begin)()) noexcept;
// Now and then, when the calling thread has queued work on `stream` and nobody can have destroyed that yet: a
// mark behind the work, by which a wait for the devices sees that they get on. Left out where the current
// context is not a device's primary one. And how many marks have passed on all devices.
void mark_progress(Allocator& allocator, StreamId stream) noexcept;
uint64_t passed_marks(Allocator& allocator) noexcept;
// The most microseconds that a device took lately from one mark to the next; 0: not known.
double slowest_marks_us(Allocator& allocator) noexcept;

}  // namespace spillway
