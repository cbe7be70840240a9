// The parameters and their accumulated gradients, with exactly-once accumulation.
//
// Autograd's fresh gradient of a parameter is added to the accumulator here the moment it is ready, and
// freed. A ledger counts the micro-batches that each accumulator holds, so that a micro-batch whose backward
// was cut off half-way can be run again and reaches only those parameters that have not had it. Nothing of
// the gradients is copied for undo.
//
// The weights of layers, their accumulators, or both may live on the host, or on a peer. Then `value` and
// `gradient` are tensors of the device whose memory comes for a layer's use and goes behind it: in a pass,
// which `follow` announces, and in a `walk`. An accumulator that was added to and is not on the host yet
// stays in its slot when a pass is cut off, so that the ledger holds.
//
// Thread-safety: one thread calls; hooks run on autograd's threads and touch only their own parameter.
// Between a failed backward and the next call of anything here, call `settle`. Ownership: owns parameters and
// accumulators. Errors: LibTorch's exceptions; `relocate` and the moves to the host and back are all or
// nothing for one layer.
#pragma once
#include <cstdint>
#include <functional>
#include <map>
#include <memory>

#include "trainer/model/initial_values.h"
#include "trainer/model/weights.h"
#include "trainer/plan/numerics.h"
#include "trainer/residency/homes.h"
#include "trainer/residency/streamed_layers.h"

namespace spillway::trainer {

// Where parameters lie.
struct Residence {
  std::vector<int> layers{};  // of each parameter its layer, or -1, which stays on its device; empty: all -1
  Place values = Place::kDevice, gradients = Place::kDevice;  // of the layers
  Homes homes{};
};

class Parameters {
 public:
  // `initial` in floats on the host; `devices[i]` is where parameter i goes, and `in_8_bits[i]` how it is
  // stored (empty: in floats). Allocates the accumulators.
  Parameters(std::vector<std::string> names, const InitialValues& initial,
             const std::vector<at::Device>& devices, const Numerics& numerics = {},
             const std::vector<bool>& in_8_bits = {}, const Residence& residence = {});
  Parameters(const Parameters&) = delete;

  size_t size() const { return values_.size(); }
  const std::string& name(size_t index) const { return names_[index]; }
  at::TensorList values() const { return values_; }
  const at::Tensor& value(size_t index) const { return values_[index]; }
  // nullptr where `value` has the numbers; else it is a leaf that stands for them.
  const Int8Weight* int8(size_t index) const { return int8_[index].defined() ? &int8_[index] : nullptr; }
  Weights weights() { return {values_, int8_, &uses_}; }
  const at::Tensor& gradient(size_t index) const { return gradients_[index]; }

  // Gradients to zero, no micro-batch accumulated.
  void clear_gradients();
  // From now on, backward passes are micro-batch `number`.
  void begin_micro_batch(uint32_t number) { micro_batch_ = number; }
  // Waits until no thread of autograd's runs a hook of a pass that failed, and drops fresh gradients that it
  // left.
  void settle();
  // Throws std::logic_error unless every parameter holds exactly `micro_batches`.
  void check_complete(uint32_t micro_batches) const;
  uint32_t accumulated(size_t index) const { return accumulated_[index]; }

  // Moves parameters [first, first + count) and their accumulators to `device`; on an exception none is
  // moved.
  void relocate(size_t first, size_t count, at::Device device);

  // The layers' weights and accumulators to the host or to peers, as far as these places say so; and to their
  // devices, which needs room for them beside the slots.
  void move_away(Place values, Place gradients, const Homes& homes);
  void move_to_device(Place values, Place gradients, const Homes& homes);
  // Slots, which are then there for the uses below.
  void reserve();
  // The coming passes use the layers in this order. May allocate slots.
  void follow(const std::vector<LayerUse>& uses);
  // Calls `visit` for each parameter in order, with its gradient or with both on its device. What it makes of
  // the gradients is lost where they live on the host; values are kept if it is an update.
  enum class Walk : uint8_t { kReadGradients, kReadBoth, kUpdate };
  void walk(Walk kind, const std::function<void(size_t index)>& visit);

  // The tensors that hold a parameter, wherever they live: its value, or codes and scales, with the ends of
  // their names. They may be written, before the next use.
  std::vector<std::pair<const char*, at::Tensor>> stored(size_t index) const;
  // FNV-1a of all bytes of all parameters, in order.
  uint64_t hash() const;

 private:
  class Hook;
  class Uses : public LayerUses {
   public:
    explicit Uses(const Parameters& owner) : owner_(owner) {}
    bool wants(uint32_t layer) const override;
    void begin(uint32_t layer, Pass pass) override;
    void end(uint32_t layer, Pass pass) override;

   private:
    const Parameters& owner_;
  };
  struct Range {
    size_t first = 0, count = 0;
  };
  using Tensors = std::vector<at::Tensor*>;

  void add(const at::Tensor& initial, const Numerics& numerics, bool in_8_bits, const Residence& residence);
  void attach_hook(size_t index);
  void accumulate(size_t index);
  int layer_of(size_t index) const { return layers_.empty() ? -1 : layers_[index]; }
  Tensors tensors_of_values(const Range& range);
  Tensors tensors_of_gradients(const Range& range);
  void stream(StreamedLayers* streamed, uint32_t layer, const Tensors& tensors, bool are_zero,
              at::Device home);
  void change_home(StreamedLayers* streamed, uint32_t layer, at::Device home) const;
  void settle_on_device(StreamedLayers* streamed, uint32_t layer, const Tensors& tensors);
  void renew_leaves(const Range& range);
  void enter(Walk kind, size_t index) const;
  void leave(Walk kind, size_t index) const;

  std::vector<std::string> names_;
  std::vector<at::Device> devices_;
  std::vector<int> layers_;
  std::map<uint32_t, Range> ranges_;  // of layers
  std::vector<at::Tensor> values_, gradients_;
  std::vector<Int8Weight> int8_;
  StreamedLayers streamed_values_{kWeightSlots}, streamed_gradients_{kGradientSlots};
  Uses uses_{*this};
  std::vector<uint32_t> accumulated_;
  uint32_t micro_batch_ = 0;
};

}  // namespace spillway::trainer
