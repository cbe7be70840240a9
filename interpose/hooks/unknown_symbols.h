// Functions of the driver that its list (driver/) does not have: those of a newer driver. The program gets a
// stub, which passes on to the function with all its arguments untouched. The first call of each is noted in
// the summary: memory that it takes is on no account. From the first call on of one whose name is that of
// work on memory, the gate cannot close any more, because such work does not pass it.
//
// Thread-safety: any thread. Errors: where there are more functions than stubs, the program gets the function
// itself, which counts as called.
#pragma once
#include <atomic>

namespace spillway::interpose {

// What the program gets for `found`, the same for the same. `cuda_version` as cuGetProcAddress was asked; 0:
// found by its name alone.
void* stub_for(void* found, const char* name, int cuda_version);

inline std::atomic<bool> unlisted_work{false};

// Whether work may be under way that no gate holds.
inline bool has_unlisted_work() {
  return unlisted_work.load(std::memory_order_relaxed);
}

}  // namespace spillway::interpose
