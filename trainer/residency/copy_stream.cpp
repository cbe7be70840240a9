#include "trainer/residency/copy_stream.h"

#include <c10/core/DeviceGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>

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
  hold(to.is_cuda() ? to : from);
}

void CopyStream::copy_held(const at::Tensor& to, const at::Tensor& from) {
  // LibTorch would put rows that do not stand together in memory of its own first, and wait for the copy.
  if (stream_ && from.is_cpu() && !from.is_contiguous()) return copy_rows(to, from, *stream_);
  const c10::OptionalStreamGuard guard(stream_);
  to.copy_(from, true);
}

void CopyStream::hold(const at::Tensor& tensor) const {
  if (stream_) tensor.record_stream(*stream_);
}

CopyStream::Mark CopyStream::copied(Mark again) const {
  return stream_ ? marked(*stream_, std::move(again)) : nullptr;
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
