// The simulator's accounts: what was not given back, as text, and the report of the process, as JSON.
//
// Thread-safety: with the lock held. Ownership: none. Errors: a report that cannot be written is said on
// stderr, once. Units: bytes.
#pragma once
#include <cuda.h>

#include <string>

namespace spillway::simulator {

std::string leaks();

// Replaces the file that SPILLWAY_SIM_REPORT names, if it names one, at once and whole: a reader never sees a
// part of a report. `when` is "end", "first refusal", "host read" or "asked". CUDA_ERROR_FILE_NOT_FOUND when
// the file cannot be written.
CUresult write_report(const char* when);

// How a request ends for which the card has no room. The first one leaves a report: the program may not live
// on.
CUresult refused_for_lack_of_room();

}  // namespace spillway::simulator
