// Counts what the program reads from a device, by the place that read it and by what the value is for.
//
// Thread-safety: `watch_reads` once; the others on the thread that reads or decides. The observer runs on the
// reading thread, without any lock, and may take the GIL. Errors: none; without the simulator nothing is
// counted.
#pragma once
#include <cstdint>

namespace spillway::rehearsal {

void watch_reads();
// This thread's reads, but for bulk copies, are numbers that decide nothing until `note_decision` says so.
// Nested pairs are one.
void begin_numbers();
// How many there were since the outermost begin.
uint64_t end_numbers();
// The program decides here by a number that it read before.
void note_decision();

}  // namespace spillway::rehearsal
