// One operator on CUDA tensors, computed by a CPU kernel.
//
// A Call turns CUDA arguments into CPU tensors over the same bytes, enters the work on the current stream,
// charges what the kernel allocates to the CUDA allocator, and turns results back into CUDA tensors. The
// order of use:
//   Call call(name);  argument(...)...;  begin();  <CPU kernel>;  end();  result(...)...;  finish();
// Left early by an exception it restores everything. Thread-safety: a Call belongs to one thread. Ownership:
// it holds its arguments until it dies. Errors: c10::Error; an allocation failure passes through as
// c10::OutOfMemoryError.
#pragma once
#include <ATen/core/Tensor.h>
#include <c10/core/impl/LocalDispatchKeySet.h>
#include <c10/cuda/CUDAGuard.h>
#include <c10/util/SmallVector.h>

#include <memory>
#include <optional>
#include <unordered_map>
#include <vector>

#include "libtorch/kernels/operators/sparse.h"
#include "libtorch/kernels/redirect.h"
#include "libtorch/kernels/simulator.h"
#include "libtorch/products.h"

namespace spillway::kernels {

class Call {
 public:
  // `name` must outlive the call.
  explicit Call(const char* name) : name_(name) {}
  Call(const Call&) = delete;
  Call& operator=(const Call&) = delete;

  // The CPU tensor to compute with instead of `original`; a tensor that is not on a CUDA device stays itself.
  // Arguments that share storage give aliases that share storage.
  at::Tensor argument(at::Tensor original, bool writes = false);
  std::optional<at::Tensor> argument(const std::optional<at::Tensor>& original);
  // Where to compute when no argument is a CUDA tensor, or to check it.
  void on_device(c10::DeviceIndex device);
  // Host tensors with more than one element are refused beside CUDA tensors, as CUDA kernels do, unless
  // allowed.
  void allow_host_arguments() { host_arguments_allowed_ = true; }

  c10::DeviceIndex device();

  void begin();
  void end();
  // The CUDA tensor for what the CPU kernel returned: the original for an argument, a view of it for a view,
  // else `computed` itself, which moves to the device.
  at::Tensor result(const at::Tensor& computed);
  void finish();

 private:
  struct Argument {
    at::Tensor original;
    at::Tensor alias;
    bool writes;
  };
  at::Tensor sparse_argument(at::Tensor original, bool writes);
  at::Tensor sparse_result(const at::Tensor& computed);
  SparseParts results(SparseParts parts);
  const Argument* find(const void* key) const;
  void remember(size_t index);
  void move_to_device(c10::StorageImpl* storage);
  libtorch::Extents extents_of(size_t argument) const;
  void add_range(const at::Tensor& tensor, bool writes, libtorch::Extents extents = {});
  bool may_write(const Argument& argument) const;
  void record_arguments();
  void take_over_changes(const Argument& argument);

  const char* name_;
  std::optional<size_t> left_factor_;
  c10::DeviceIndex device_ = -1;
  bool host_arguments_allowed_ = false;
  c10::SmallVector<Argument, 6> arguments_;
  std::vector<Argument> sparse_;  // whose parts are among the arguments
  c10::SmallVector<SpillwayRange, 8> ranges_;
  uint64_t touched_bytes_ = 0;
  std::unique_ptr<std::unordered_map<const void*, size_t>> index_;  // from kLinear arguments on
  c10::cuda::OptionalCUDAGuard guard_;
  CUstream stream_ = nullptr;
  std::optional<RedirectScope> redirect_;
  std::optional<c10::impl::ExcludeDispatchKeyGuard> below_autograd_;
};

}  // namespace spillway::kernels
