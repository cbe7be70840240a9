// Work of the program on a stream: kernels, host functions, submitted work.
#pragma once
#include "simulator/driver/call.h"
#include "spillway/driver/simulator_control.h"

namespace spillway::simulator {

CUresult submit(CUstream stream, const char* name, const SpillwayRange* ranges, size_t count,
                uint64_t duration_ns, void (*work)(void*), void* argument, Caller caller);

// Checks what the work touches, and gives it its place.
CUresult occupy(Stream& stream, const char* name, const SpillwayRange* ranges, size_t count,
                uint64_t duration_ns, const Call& call);

// `work` is not null and complete.
CUresult submit_external(CUstream stream, const SpillwayExternalWork& work, Caller caller);

}  // namespace spillway::simulator
