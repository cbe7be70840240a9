// The stream on which a device's copies to the host, or from it, run beside what the device computes. A peer
// takes the host's place where the other tensor of a copy is on another device: such copies are queued on the
// same stream, and the peer's computation and the copies do not wait for each other. Without access of one
// device to the other's memory the driver takes them through the host.
//
// Thread-safety: any thread. Ownership: it lives as long as the process. Errors: LibTorch's exceptions. Where
// the device is the CPU, copies are done when `copy` returns, and a mark is nothing.
#pragma once
#include <c10/core/Event.h>

#include <memory>

#include "trainer/libtorch.h"

namespace spillway::trainer {

enum class Direction : uint8_t { kToHost, kToDevice };

class CopyStream {
 public:
  // What had been queued when it was made; null: nothing to wait for.
  using Mark = std::shared_ptr<c10::Event>;

  static CopyStream& of(at::Device device, Direction direction);

  // What the current stream of the device has been given so far. `again`: a mark that is no longer needed,
  // whose event is recorded anew in place of making one.
  Mark computed(Mark again = nullptr) const;
  // Copies are queued behind `mark`.
  void wait_for(const Mark& mark);
  // Queues it. The device's tensor keeps its memory until it is done; the other one must be kept by the
  // caller. REQUIRES: both are contiguous and of one type.
  void copy(const at::Tensor& to, const at::Tensor& from);
  // The same for a caller that keeps both until it is done, and then has the device's memory free at once.
  void copy_held(const at::Tensor& to, const at::Tensor& from);
  // The device's tensor keeps its memory until all copies that have been queued so far are done.
  void hold(const at::Tensor& tensor) const;
  // All copies that have been queued so far.
  Mark copied(Mark again = nullptr) const;

 private:
  CopyStream(at::Device device, std::optional<c10::Stream> stream) : device_(device), stream_(stream) {}

  const at::Device device_;
  const std::optional<c10::Stream> stream_;  // none: the CPU
};

// Of a move between places: done when it returns, and seen by all streams.
void copy_now(const at::Tensor& to, const at::Tensor& from);
void zero_now(const at::Tensor& tensor);

// What the current stream of `device` is given from now on runs behind `mark`.
void compute_after(const CopyStream::Mark& mark, at::Device device);
// Until all that `mark` stands for is done.
void wait_on_host(const CopyStream::Mark& mark);
// What `stream` copies from now on is behind `mark`; without a stream the host waits.
void queue_behind(CopyStream* stream, const CopyStream::Mark& mark);
bool is_done(const CopyStream::Mark& mark);

}  // namespace spillway::trainer
