// Work of the program on a stream: kernels, host functions, submitted work.
#pragma once
#include <vector>

#include "driver/simulator_control.h"
#include "simulator/driver/entry/call.h"
#include "simulator/driver/work/work.h"

namespace spillway::simulator {

CUresult submit(CUstream stream, const char* name, const SpillwayRange* ranges, size_t count,
                uint64_t duration_ns, void (*work)(void*), void* argument, Caller caller);

// The kernel becomes a node of the graph that the stream captures, which repeats its work at each launch.
CUresult capture(CUstream stream, const char* name, const SpillwayRange* ranges, size_t count,
                 uint64_t duration_ns, const Repetition& repetition, Caller caller);

// A kernel whose ranges are declared, and one that came as a binary: it does nothing but take its time, as
// what it touches is not known.
KernelWork declared_work(const char* name, const SpillwayRange* ranges, size_t count, uint64_t duration_ns);
KernelWork binary_work(const CUDA_KERNEL_NODE_PARAMS& launch);

inline Touched touched(const SpillwayRange& range) {
  return {range.address, range.bytes, range.writes != 0, range.own, range.other};
}

// What the links take for those bytes of the ranges that do not lie on `device`.
uint64_t link_ns(const Device& device, const std::vector<Touched>& ranges);

// An operator of which the launches did not say what they touch.
CUresult operate(CUstream stream, const SpillwayRange* ranges, size_t count, uint64_t bytes,
                 double operations);

// Work that its submitter does once cannot be captured: a graph could not do it again.
CUresult refuse_capture(Stream& stream, const char* name);

// `work` is not null and complete.
CUresult submit_external(CUstream stream, const SpillwayExternalWork& work, Caller caller);

}  // namespace spillway::simulator
