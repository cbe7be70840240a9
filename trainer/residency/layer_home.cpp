#include "trainer/residency/layer_home.h"

#include <algorithm>

#include "trainer/residency/host_tensor.h"

namespace spillway::trainer {
namespace {

class HostHome : public LayerHome {
 public:
  HostHome(int64_t bytes, at::Device device) : memory_(host_tensor({bytes}, at::kByte, device)) {}

  Place place() const override { return Place::kHost; }
  at::Tensor read(CopyStream* by) override {
    queue_behind(by, written_);
    return memory_;
  }
  // A copy to it is behind the computation with what was read from it, and the host writes when no copy runs.
  at::Tensor overwrite(CopyStream*) override { return memory_; }
  void written_by(CopyStream::Mark mark) override { written_ = std::move(mark); }
  at::Tensor change(CopyStream*) override { return memory_; }
  void partly_written_by(CopyStream::Mark) override {}

 private:
  const at::Tensor memory_;
  CopyStream::Mark written_;
};

}  // namespace

void copy_home(LayerHome& from, LayerHome& to) {
  const at::Tensor read = from.read(nullptr), written = to.overwrite(nullptr);
  const int64_t bytes = std::min(read.numel(), written.numel());  // a disk's are rounded up
  written.narrow(0, 0, bytes).copy_(read.narrow(0, 0, bytes));
  to.written_by(nullptr);
  to.settle();
}

std::shared_ptr<LayerHome> home_on_host(int64_t bytes, at::Device device) {
  return std::make_shared<HostHome>(bytes, device);
}

}  // namespace spillway::trainer
