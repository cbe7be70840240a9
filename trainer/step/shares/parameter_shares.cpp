// Parameters of which several ranks have shares: how they come whole to where they are used.
#include <stdexcept>

#include "trainer/step/parameters.h"

namespace spillway::trainer {

// Of a unit's weights, or of its gradients: all ranks have it together.
class Parameters::SharedHome : public LayerHome {
 public:
  SharedHome(Parameters& owner, uint32_t unit, Role role) : owner_(owner), unit_(unit), role_(role) {}

  Place place() const override { return Place::kDevice; }
  bool is_shared() const override { return true; }
  CopyStream::Mark come(const at::Tensor& memory) override { return owner_.exchange(unit_, role_, memory); }
  CopyStream::Mark go(const at::Tensor& memory) override { return owner_.exchange(unit_, role_, memory); }
  at::Tensor read(CopyStream*) override { return not_here(); }
  at::Tensor overwrite(CopyStream*) override { return not_here(); }
  at::Tensor change(CopyStream*) override { return not_here(); }
  void written_by(CopyStream::Mark) override {}
  void partly_written_by(CopyStream::Mark) override {}

 private:
  static at::Tensor not_here() { throw std::logic_error("a unit that ranks share has no bytes of its own"); }

  Parameters& owner_;
  const uint32_t unit_;
  const Role role_;
};

void Parameters::share_unit(uint32_t unit, Role role) {
  const at::NoGradGuard no_grad;
  const Range& range = ranges_.at(unit);
  const bool is_value = role == Role::kValues;
  const Tensors wholes = is_value ? tensors_of_values(range, true) : tensors_of_gradients(range, true);
  const at::Device device = devices_[range.first];
  LayerBlock block(parts_of(wholes), device,
                   [&](int64_t) { return std::make_shared<SharedHome>(*this, unit, role); });
  for (size_t i = 0; i < wholes.size(); ++i) *wholes[i] = block.tensor(i);
  (is_value ? gathered_values_ : summed_gradients_).add(unit, device, std::move(block), !is_value);
}

// `memory`: of the whole unit.
CopyStream::Mark Parameters::exchange(uint32_t unit, Role role, const at::Tensor& memory) {
  const at::NoGradGuard no_grad;
  const bool is_value = role == Role::kValues;
  const LayerBlock& block = (is_value ? gathered_values_ : summed_gradients_).cache_of(unit).block(unit);
  const size_t first = ranges_.at(unit).first;
  const auto whole = [&](size_t index) { return block.view(memory, index - first).view({-1}); };
  const auto share = [&](size_t index) { return share_of(role, index); };
  const StreamedLayers& shares = streamed(role);
  const CopyStream::Mark done = shares_.exchange->beside([&] {
    shares.begin(unit, is_value ? LayerCache::Use::kRead : LayerCache::Use::kWrite);
    if (is_value)
      shares_.exchange->gather(int(unit), share, whole);
    else
      shares_.exchange->add_up(int(unit), whole, share);
    shares.end(unit, LayerCache::After::kKept);
  });
  if (!is_value) ++summed_[int(unit)], last_sum_ = done;
  return done;
}

void Parameters::end_micro_batch() {
  if (!has_shares() || is_summed(-1)) return;
  const at::NoGradGuard no_grad;
  const auto whole = [this](size_t index) { return gradients_[index].view({-1}); };
  const auto share = [this](size_t index) { return gradient_shares_[index]; };
  last_sum_ = outer_summed_ = shares_.exchange->beside([&] {
    shares_.exchange->add_up(-1, whole, share);
    for (size_t i = 0; i < size(); ++i)
      if (unit_of(i) < 0) gradients_[i].zero_();
  });
  ++summed_[-1];
}

bool Parameters::is_summed(int unit) const {
  const auto found = summed_.find(unit);
  return found != summed_.end() && found->second > micro_batch_;
}

bool Parameters::has_summed() const {
  return !summed_.empty();
}

void Parameters::announce(const std::vector<UnitUse>& uses) {
  used_gradients().follow(units_in(uses, true));
  if (shares_.of_values) gathered_values_.follow(units_in(uses, false));
}

// The order in which ranks exchange things follows from it.
void Parameters::begin_announced(uint32_t unit, Pass pass) const {
  const UnitUse use{unit, pass == Pass::kBackward};
  if (uses_done_ >= uses_to_come_.size() || uses_to_come_[uses_done_] != use)
    throw std::logic_error(unit_name(unit) + " is used out of the order that was announced, of use " +
                           std::to_string(uses_done_) + " of " + std::to_string(uses_to_come_.size()));
}

void Parameters::pass_over() {
  const std::vector<UnitUse> left(uses_to_come_.begin() + ptrdiff_t(uses_done_), uses_to_come_.end());
  uses_to_come_ = left;
  uses_done_ = 0;
  announce(left);
  for (const auto& [unit, backward] : left) {
    const Pass pass = backward ? Pass::kBackward : Pass::kForward;
    uses_.begin(unit, pass);
    uses_.end(unit, pass);
  }
  std::fill(accumulated_.begin(), accumulated_.end(), micro_batch_ + 1);
}

at::Tensor Parameters::own_part(const at::Tensor& share, size_t index, int64_t begin, int64_t length) const {
  return share.narrow(0, begin - shares_.own[index].begin, length);
}

at::Tensor Parameters::read_share(size_t index) {
  at::Tensor values;
  visit_tensor(index, value_shares_[index], false,
               [&](const at::Tensor& tensor) { values = tensor.is_cuda() ? tensor.cpu() : tensor.clone(); });
  return values;
}

}  // namespace spillway::trainer
