// Operators in a capture: computed once while the graph is made, so that those behind them find values, and
// again at each launch of the graph, on the same addresses. What the first computation wrote is undone when
// the capture ends.
//
// Thread-safety: free functions; a recording belongs to its thread, what it keeps to the graph. Ownership:
// what is kept owns no memory of the device: as natively a graph is valid as long as the memory that it
// names. Errors: c10::Error while capturing; at a launch they are printed, and the launch fails.
#pragma once
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/cuda/PhiloxCudaState.h>

#include <cstddef>
#include <optional>
#include <vector>

#include "libtorch/kernels/operators/random.h"
#include "libtorch/kernels/simulator.h"

namespace spillway::kernels {

// An operator's kernel on boxed arguments. Lives as long as the process.
class Computation {
 public:
  virtual ~Computation() = default;
  virtual void compute(const c10::OperatorHandle& op, c10::DispatchKeySet keys, torch::jit::Stack* stack) = 0;
};

// Computes, and keeps the operator for the graph if its arguments' stream captures.
void compute_or_record(Computation& computation, const c10::OperatorHandle& op, c10::DispatchKeySet keys,
                       torch::jit::Stack* stack);

// Whether this thread computes for a capture, or for a launch.
bool is_recording();
bool is_replaying();
// What the operator of this launch returned while it was captured, tensor for tensor, as CPU tensors over the
// same bytes; undefined where it was empty, an argument, or a view of one. For kernels that would allocate
// their results again.
const std::vector<at::Tensor>& replayed_results();

// What the recorded operator reads and writes; and before it writes to what was there.
void record_ranges(const SpillwayRange* ranges, size_t count);
void preserve_before_writing(CUstream stream, const SpillwayRange* ranges, size_t count);

// The recorded operator's next draw of a generator, or that of the launch, which moves on from launch to
// launch.
DrawKey record_draw(const at::PhiloxCudaState& state);
DrawKey replayed_draw();

}  // namespace spillway::kernels
