// Computing mode: kernels that a program launched while nobody computed in their place. What they would have
// written is undefined, and so is what follows from it. Each is named once on stderr, and counted in the
// report.
//
// Thread-safety: `note_if_uncomputed` and the counts under the machine's lock; `stand_in` is the calling
// thread's. Ownership: names are copied. Errors: none.
#pragma once
#include <cstdint>
#include <map>
#include <string>

namespace spillway::simulator {

// Launches by the kernel's name, as a person reads it.
using UncomputedKernels = std::map<std::string, uint64_t>;

void note_if_uncomputed(const char* kernel);

// While the sum of a thread's changes is above 0 somebody computes in place of its kernels. Gives that sum.
int stand_in(int change);

}  // namespace spillway::simulator
