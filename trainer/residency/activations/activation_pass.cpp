#include "trainer/residency/activations/activation_pass.h"

#include <algorithm>
#include <ranges>
#include <utility>

namespace spillway::trainer {

// The bytes of one storage: on the device, at home, or on their way.
class KeptStorage {
 public:
  KeptStorage(std::shared_ptr<ActivationHost> host, const at::Tensor& tensor)
      : host_(std::move(host)),
        device_(tensor.device()),
        bytes_(static_cast<int64_t>(tensor.storage().nbytes())),
        there_(at::empty({0}, tensor.options().dtype(at::kByte))) {
    there_.set_(tensor.storage(), 0, {bytes_}, {1});
  }
  KeptStorage(const KeptStorage&) = delete;

  // A pass that ended half-way drops what is still being copied.
  ~KeptStorage() {
    if (there_.defined() && copying_ != nullptr) stream(way_).hold(there_);
  }

  at::Device device() const { return device_; }
  int64_t bytes() const { return bytes_; }
  const CopyStream::Mark& copying() const { return copying_; }
  bool is_there() const { return there_.defined(); }
  KeptHome& home() const { return *home_; }

  // It is the `index`-th storage there.
  void live_in(std::shared_ptr<KeptHome> home, size_t index) { home_ = std::move(home), index_ = index; }

  void copy_to(const std::vector<at::Tensor>& homes) {
    way_ = Direction::kToHost;
    stream(way_).copy_held(part_of(homes), there_);
    host_->bytes_to_host += uint64_t(bytes_);
  }

  // Behind the copy, on which what the device computes from now on waits.
  void leave() { there_.reset(), copying_ = nullptr; }

  at::Tensor room() const { return at::empty({bytes_}, at::device(device_).dtype(at::kByte)); }

  void copy_back(at::Tensor to, const std::vector<at::Tensor>& homes) {
    way_ = Direction::kToDevice;
    there_ = std::move(to);
    stream(way_).copy_held(there_, part_of(homes));
    host_->bytes_to_device += uint64_t(bytes_);
  }

  void is_copied_at(const CopyStream::Mark& mark) { copying_ = mark; }

  // Behind the copy that brings it.
  at::Tensor arrived() {
    if (way_ == Direction::kToDevice) compute_after(std::exchange(copying_, nullptr), device_);
    return there_;
  }

  CopyStream& stream(Direction direction) const { return CopyStream::of(device_, direction); }

 private:
  at::Tensor part_of(const std::vector<at::Tensor>& homes) const {
    return homes.at(index_).narrow(0, 0, bytes_);
  }

  const std::shared_ptr<ActivationHost> host_;
  const at::Device device_;
  const int64_t bytes_;
  at::Tensor there_;                // undefined while it is at home alone
  std::shared_ptr<KeptHome> home_;  // with all that its layer keeps
  size_t index_ = 0;
  Direction way_ = Direction::kToHost;  // of the last copy
  CopyStream::Mark copying_;            // of the same, while the computation has not waited for it
};

namespace {

using Storages = std::vector<std::shared_ptr<KeptStorage>>;

Storages alive(const std::vector<std::weak_ptr<KeptStorage>>& group) {
  Storages all;
  for (const auto& each : group)
    if (auto kept = each.lock()) all.push_back(std::move(kept));
  return all;
}

// All are of one device. On an exception none has begun.
void copy_to(const std::shared_ptr<KeptHome>& home, const Storages& all) {
  CopyStream& stream = all[0]->stream(Direction::kToHost);
  CopyStream::Mark mark;
  home->write(stream, [&](const std::vector<at::Tensor>& memory) {
    stream.wait_for(stream.computed());
    for (size_t i = 0; i < all.size(); ++i) all[i]->live_in(home, i), all[i]->copy_to(memory);
    return mark = stream.copied();
  });
  for (const auto& kept : all) kept->is_copied_at(mark);
}

// All are of one home.
void bring_back(Storages all) {
  std::erase_if(all, [](const auto& kept) { return kept->is_there(); });
  if (all.empty()) return;
  std::vector<at::Tensor> room;
  room.reserve(all.size());
  for (const auto& kept : all) room.push_back(kept->room());
  CopyStream& stream = all[0]->stream(Direction::kToDevice);
  CopyStream::Mark mark;
  all[0]->home().read(stream, [&](const std::vector<at::Tensor>& memory) {
    stream.wait_for(stream.computed());  // what had this memory before
    for (size_t i = 0; i < all.size(); ++i) all[i]->copy_back(std::move(room[i]), memory);
    return mark = stream.copied();
  });
  for (const auto& kept : all) kept->is_copied_at(mark);
}

// As autograd keeps it, with the check that autograd makes of what no hook has.
std::function<at::Tensor()> kept_there(const at::Tensor& tensor) {
  return [kept = tensor.tensor_data(), version = tensor._version()] {
    TORCH_CHECK(kept._version() == version, "a tensor that the backward needs was changed in place");
    return kept;
  };
}

}  // namespace

ActivationPass::~ActivationPass() = default;

ActivationPass::Layer::Layer(ActivationPass& pass, at::Device device, std::optional<uint32_t> until,
                             const std::vector<at::Tensor>& stays)
    : pass_(pass), device_(device), until_(until) {
  for (const at::Tensor& tensor : stays) stays_.insert(tensor.storage().unsafeGetStorageImpl());
  if (until) scope_.emplace(static_cast<TensorKeeper*>(this));
}

ActivationPass::Layer::~Layer() = default;

bool ActivationPass::Layer::goes(const at::Tensor& tensor) const {
  return tensor.has_storage() && tensor.layout() == at::kStrided && tensor.device() == device_ &&
         tensor.storage().nbytes() >= pass_.host_->least_bytes() &&
         !stays_.contains(tensor.storage().unsafeGetStorageImpl());
}

std::function<at::Tensor()> ActivationPass::Layer::keep(const at::Tensor& tensor) {
  if (!goes(tensor)) return kept_there(tensor);
  const c10::StorageImpl* const storage = tensor.storage().unsafeGetStorageImpl();
  auto found = std::ranges::find(kept_, storage, [](const auto& each) { return each.first; });
  if (found == kept_.end())
    found = kept_.emplace(found, storage, std::make_shared<KeptStorage>(pass_.host_, tensor));
  return [kept = found->second, type = tensor.scalar_type(), sizes = tensor.sizes().vec(),
          strides = tensor.strides().vec(), offset = tensor.storage_offset()] {
    bring_back({kept});
    return kept->arrived().view(type).as_strided(sizes, strides, offset);
  };
}

void ActivationPass::Layer::end(uint32_t end, const at::Tensor& output) {
  scope_.reset();
  Ended ended;
  pass_.leave_device(end, &ended.left);
  Storages all;
  for (auto& [storage, kept] : kept_)
    if (kept.use_count() > 1) all.push_back(std::move(kept));
  kept_.clear();
  pass_.copy_away(device_, end - 1, all);
  ended.kept.assign(all.begin(), all.end());
  if (until_) pass_.leaving_.push_back({ended.kept, *until_});
  const size_t layer = pass_.layers_.size();
  pass_.layers_.push_back(std::move(ended));
  output.register_hook(
      [pass = pass_.shared_from_this(), layer](const at::Tensor&) { pass->backward_reaches(layer); });
}

void ActivationPass::copy_away(at::Device device, uint32_t layer, const Storages& all) {
  if (all.empty()) return;
  std::vector<uint64_t> bytes;
  for (const auto& kept : all) bytes.push_back(uint64_t(kept->bytes()));
  copy_to(host_->home(device, layers_.size(), layer, std::move(bytes)), all);
}

// A later layer's copies end behind those of the ones before it, and it leaves behind them.
void ActivationPass::leave_device(uint32_t end, std::vector<Group>* left) {
  for (; !leaving_.empty() && leaving_.front().until < end; leaving_.pop_front()) {
    const Storages all = alive(left->emplace_back(std::move(leaving_.front().kept)));
    if (all.empty()) continue;
    compute_after(all[0]->copying(), all[0]->device());
    for (const auto& kept : all) kept->leave();
  }
}

// The last layer's come first.
void ActivationPass::backward_reaches(size_t layer) {
  bring_back(alive(layers_[layer].kept));
  for (const Group& left : layers_[layer].left | std::views::reverse) bring_back(alive(left));
}

}  // namespace spillway::trainer
