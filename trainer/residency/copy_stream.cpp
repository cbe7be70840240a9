#include "trainer/residency/copy_stream.h"

#include <ATen/cuda/PeerToPeerAccess.h>
#include <c10/core/DeviceGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <c10/cuda/CUDACachingAllocator.h>

#include <map>

#include "base/mutex.h"
#include "trainer/residency/host_tensor.h"

namespace spillway::trainer {
namespace {

CopyStream::Mark marked(const c10::Stream& stream, CopyStream::Mark mark) {
  if (mark == nullptr) mark = std::make_shared<c10::Event>(stream.device_type());
  mark->record(stream);
  return mark;
}

c10::Stream current_stream(at::Device device) {
  return c10::impl::VirtualGuardImpl(device.type()).getStream(device);
}

// LibTorch's own copy has both devices wait for it.
void copy_between_devices(const at::Tensor& to, const at::Tensor& from, const c10::Stream& stream) {
  const c10::DeviceGuard guard(stream.device());
  const int target = to.device().index(), source = from.device().index(), own = stream.device().index();
  const bool access =
      at::cuda::get_p2p_access(c10::DeviceIndex(own), c10::DeviceIndex(own == target ? source : target));
  const cudaError_t error = c10::cuda::CUDACachingAllocator::memcpyAsync(
      to.mutable_data_ptr(), target, from.const_data_ptr(), source, to.nbytes(),
      static_cast<cudaStream_t>(stream.native_handle()), access);
  TORCH_CHECK(error == cudaSuccess, "a copy of ", to.nbytes(), " bytes from ", from.device(), " to ",
              to.device(), " was refused: error ", int(error), " of the CUDA runtime");
}

void wait_for_computation(at::Device device) {
  wait_on_host(CopyStream::of(device, Direction::kToDevice).computed());
}

}  // namespace

CopyStream& CopyStream::of(at::Device device, Direction direction) {
  using Key = std::pair<int, Direction>;
  static Mutex<LockOrder::kLeaf> mutex;
  static auto* const streams = new std::map<Key, std::unique_ptr<CopyStream>>;
  const Key key{device.is_cuda() ? device.index() : -1, direction};
  {
    const Locked lock(mutex);
    if (const auto found = streams->find(key); found != streams->end()) return *found->second;
  }
  std::optional<c10::Stream> own;  // made without the lock: LibTorch takes locks of its own
  if (device.is_cuda())
    own = c10::impl::VirtualGuardImpl(device.type()).getStreamFromGlobalPool(device, false);
  std::unique_ptr<CopyStream> made(new CopyStream(device, own));
  const Locked lock(mutex);
  return *streams->try_emplace(key, std::move(made)).first->second;
}

CopyStream::Mark CopyStream::computed(Mark again) const {
  return stream_ ? marked(current_stream(device_), std::move(again)) : nullptr;
}

void CopyStream::wait_for(const Mark& mark) {
  if (mark != nullptr) mark->block(*stream_);
}

void CopyStream::copy(const at::Tensor& to, const at::Tensor& from) {
  copy_held(to, from);
  hold(to.device() == device_ ? to : from);
}

void CopyStream::copy_held(const at::Tensor& to, const at::Tensor& from) {
  // LibTorch would put rows that do not stand together in memory of its own first, and wait for the copy.
  if (stream_ && from.is_cpu() && !from.is_contiguous()) return copy_rows(to, from, *stream_);
  if (stream_ && to.is_cuda() && from.is_cuda() && to.device() != from.device())
    return copy_between_devices(to, from, *stream_);
  const c10::OptionalStreamGuard guard(stream_);
  to.copy_(from, true);
}

void CopyStream::hold(const at::Tensor& tensor) const {
  if (stream_) tensor.record_stream(*stream_);
}

CopyStream::Mark CopyStream::copied(Mark again) const {
  return stream_ ? marked(*stream_, std::move(again)) : nullptr;
}

void copy_now(const at::Tensor& to, const at::Tensor& from) {
  to.copy_(from);
  wait_for_computation(to.device());
}

void zero_now(const at::Tensor& tensor) {
  tensor.zero_();
  wait_for_computation(tensor.device());
}

void compute_after(const CopyStream::Mark& mark, at::Device device) {
  if (mark != nullptr) mark->block(current_stream(device));
}

void wait_on_host(const CopyStream::Mark& mark) {
  if (mark != nullptr) mark->synchronize();
}

void queue_behind(CopyStream* stream, const CopyStream::Mark& mark) {
  stream != nullptr ? stream->wait_for(mark) : wait_on_host(mark);
}

bool is_done(const CopyStream::Mark& mark) {
  return mark == nullptr || mark->query();
}

}  // namespace spillway::trainer
