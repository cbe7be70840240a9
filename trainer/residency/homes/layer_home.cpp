#include "trainer/residency/homes/layer_home.h"

#include <algorithm>

#include "trainer/residency/homes/homes.h"

namespace spillway::trainer {
namespace {

class MemoryHome : public LayerHome {
 public:
  MemoryHome(int64_t bytes, at::Device device, at::Device home)
      : memory_(home_tensor({bytes}, at::kByte, device, home)) {}

  Place place() const override { return memory_.is_cuda() ? Place::kPeer : Place::kHost; }
  at::Device device() const override { return memory_.device(); }
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
  copy_now(written.narrow(0, 0, bytes), read.narrow(0, 0, bytes));
  to.written_by(nullptr);
  to.settle();
}

std::shared_ptr<LayerHome> home_in_memory(int64_t bytes, at::Device device, at::Device home) {
  return std::make_shared<MemoryHome>(bytes, device, home);
}

}  // namespace spillway::trainer
