#include "libtorch/kernels/operators/copy.h"

#include <ATen/core/CachingHostAllocator.h>
#include <ATen/core/Tensor.h>
#include <ATen/cuda/CUDAEvent.h>
#include <ATen/ops/_local_scalar_dense.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <c10/cuda/CUDACachingAllocator.h>
#include <c10/cuda/CUDAException.h>
#include <c10/cuda/CUDAFunctions.h>
#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAStream.h>
#include <cuda_runtime_api.h>

#include "libtorch/kernels/call.h"
#include "libtorch/kernels/recording.h"

namespace spillway::kernels {
namespace {

using c10::cuda::CUDAStream;
using c10::cuda::getCurrentCUDAStream;

// The same bytes in the same order: one plain copy does it.
bool bytes_suffice(const at::Tensor& to, const at::Tensor& from) {
  return to.scalar_type() == from.scalar_type() && to.is_conj() == from.is_conj() &&
         to.is_neg() == from.is_neg() && to.is_non_overlapping_and_dense() &&
         from.is_non_overlapping_and_dense() &&
         (to.strides() == from.strides() || (to.is_contiguous() && from.is_contiguous()));
}

void copy_bytes_on_device(const at::Tensor& to, const at::Tensor& from) {
  const c10::cuda::CUDAGuard guard(to.device());
  if (to.data_ptr() == from.const_data_ptr()) return;
  C10_CUDA_CHECK(cudaMemcpyAsync(to.mutable_data_ptr(), from.const_data_ptr(), to.nbytes(),
                                 cudaMemcpyDeviceToDevice, getCurrentCUDAStream()));
}

void copy_elements_on_device(const at::Tensor& to, const at::Tensor& from) {
  Call call("aten::copy_");
  const at::Tensor source = call.argument(from);
  const at::Tensor target = call.argument(to, /*writes=*/true);
  call.begin();
  target.copy_(source);
  call.end();
  call.finish();
}

void copy_host_bytes(const at::Tensor& to, const at::Tensor& from, bool non_blocking) {
  const bool upload = to.is_cuda();
  const at::Tensor& host = upload ? from : to;
  const c10::cuda::CUDAGuard guard(upload ? to.device() : from.device());
  const CUDAStream stream = getCurrentCUDAStream();
  C10_CUDA_CHECK(cudaMemcpyAsync(to.mutable_data_ptr(), from.const_data_ptr(), to.nbytes(),
                                 upload ? cudaMemcpyHostToDevice : cudaMemcpyDeviceToHost, stream));
  if (non_blocking) {
    const c10::DataPtr& block = host.storage().data_ptr();
    at::getHostAllocator(at::kCUDA)->record_event(host.data_ptr(), block.get_context(), stream.unwrap());
  } else {
    c10::cuda::stream_synchronize(stream);
  }
}

void wait_for(const CUDAStream& waiting, const CUDAStream& awaited) {
  at::cuda::CUDAEvent event;
  {
    const c10::cuda::CUDAGuard guard(awaited.device());
    event.record(awaited);
  }
  const c10::cuda::CUDAGuard guard(waiting.device());
  event.block(waiting);
}

// On the source's stream, in order with both devices' streams, as PyTorch does it.
void copy_peer_bytes(const at::Tensor& to, const at::Tensor& from) {
  const CUDAStream source_stream = getCurrentCUDAStream(from.device().index());
  const CUDAStream target_stream = getCurrentCUDAStream(to.device().index());
  wait_for(source_stream, target_stream);
  {
    const c10::cuda::CUDAGuard guard(from.device());
    C10_CUDA_CHECK(cudaMemcpyPeerAsync(to.mutable_data_ptr(), to.device().index(), from.const_data_ptr(),
                                       from.device().index(), to.nbytes(), source_stream));
  }
  wait_for(target_stream, source_stream);
}

void copy_bytes_across(const at::Tensor& to, const at::Tensor& from, bool non_blocking) {
  if (to.is_cuda() && from.is_cuda()) {
    copy_peer_bytes(to, from);
  } else {
    copy_host_bytes(to, from, non_blocking);
  }
}

// Converted and made contiguous where it comes from, copied as bytes, laid out where it goes.
void copy_across(const at::Tensor& to, const at::Tensor& from, bool non_blocking) {
  if (bytes_suffice(to, from)) return copy_bytes_across(to, from, non_blocking);
  const at::Tensor source = from.to(to.scalar_type()).contiguous().resolve_conj().resolve_neg();
  const bool direct = to.is_contiguous() && !to.is_conj() && !to.is_neg();
  const at::Tensor target = direct ? to : at::empty(to.sizes(), to.options());
  copy_bytes_across(target, source, non_blocking && direct && source.is_same(from));
  if (!direct) to.copy_(target);
}

at::Tensor& copy_(at::Tensor& self, const at::Tensor& src, bool non_blocking) {
  TORCH_CHECK(self.defined() && src.defined(), "aten::copy_: a tensor is undefined");
  TORCH_CHECK_NOT_IMPLEMENTED(self.layout() == at::kStrided && src.layout() == at::kStrided &&
                                  !self.is_quantized() && !src.is_quantized(),
                              "aten::copy_ on a simulated CUDA device copies dense tensors only");
  if (self.is_same(src)) return self;
  const at::Tensor source = self.sizes() == src.sizes() ? src : src.expand(self.sizes());
  if (self.numel() == 0) return self;
  if (self.device() != src.device()) {
    copy_across(self, source, non_blocking);
  } else if (bytes_suffice(self, source) && !is_recording() && !is_replaying()) {
    copy_bytes_on_device(self, source);
  } else {
    copy_elements_on_device(self, source);
  }
  return self;
}

at::Scalar local_scalar_dense(const at::Tensor& self) {
  at::Tensor value = at::empty({}, self.options().device(at::kCPU));
  const c10::cuda::CUDAGuard guard(self.device());
  const CUDAStream stream = getCurrentCUDAStream();
  c10::cuda::memcpy_and_sync(value.mutable_data_ptr(), self.const_data_ptr(),
                             static_cast<int64_t>(value.nbytes()), cudaMemcpyDeviceToHost, stream);
  if (self.is_conj()) value._set_conj(true);
  if (self.is_neg()) value._set_neg(true);
  return value.item();
}

}  // namespace

void register_copies(OwnKernels& library) {
  library.impl("copy_", &copy_);
  library.impl("_local_scalar_dense", &local_scalar_dense);
}

}  // namespace spillway::kernels
