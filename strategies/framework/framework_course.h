// How what LibTorch's own allocator has in use went, from the start until now: a report tells from it whether
// that grew. Looked at now and then, and of a long run ever more seldom.
//
// Thread-safety: any thread. Errors: none; a device that was never looked at has no course. Units: bytes,
// nanoseconds of the trace's clock.
#pragma once
#include <cstdint>
#include <vector>

namespace spillway {

struct FrameworkSample {
  uint64_t clock_ns = 0, used_bytes = 0, held_bytes = 0;
};

void note_framework_course(int device, uint64_t used_bytes, uint64_t held_bytes);
// By time; fewer than 256.
std::vector<FrameworkSample> framework_course(int device);

}  // namespace spillway
