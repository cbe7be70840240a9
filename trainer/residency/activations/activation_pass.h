// What layers keep for their backward: on the host, a peer or a disk between the two.
//
// Where a layer ends in the forward, what its operators kept is copied to page-locked memory, or to a peer's,
// beside the computation of the next layers, and its device memory is freed where a later layer ends
// (Plan::offloaded_until). From page-locked memory it may go on to a disk. In the backward it comes back when
// that layer's begins. A tensor is copied with its storage, once for all operators of the layer that keep it,
// and views have the sizes and strides that they had. What is smaller than `least_bytes`, the layer's weights
// and what it reads beside its input stay where they are.
//
// Thread-safety: an ActivationPass is begun by one thread, and its backward runs on autograd's: on several
// devices on several, but a layer's backward behind those of the layers after it, and so without a lock.
// Ownership: memory and files are the ActivationHost's, which keeps them for the next pass. Errors:
// c10::OutOfMemoryError of the device or of a KeptHome; a graph that is dropped half-way leaves nothing
// behind.
#pragma once
#include <deque>
#include <memory>
#include <optional>
#include <set>

#include "trainer/residency/activations/activation_host.h"
#include "trainer/residency/activations/saved_tensors.h"

namespace spillway::trainer {

class KeptStorage;

// One forward and its backward. The graph holds it.
class ActivationPass : public std::enable_shared_from_this<ActivationPass> {
 public:
  explicit ActivationPass(std::shared_ptr<ActivationHost> host) : host_(std::move(host)) {}
  ~ActivationPass();

  // The forward of a layer, or of several whose backward begins with that of the last.
  class Layer : TensorKeeper {
   public:
    // `until`: the layer at whose end what this one kept has left the device; none: it stays. `stays`:
    // tensors that are not copied.
    Layer(ActivationPass& pass, at::Device device, std::optional<uint32_t> until,
          const std::vector<at::Tensor>& stays);
    ~Layer() override;
    // Its output. Layers up to `end` have been computed now, and nothing is kept for them any more.
    void end(uint32_t end, const at::Tensor& output);

   private:
    std::function<at::Tensor()> keep(const at::Tensor& tensor) override;
    bool goes(const at::Tensor& tensor) const;

    ActivationPass& pass_;
    const at::Device device_;
    const std::optional<uint32_t> until_;
    std::set<const c10::StorageImpl*> stays_;
    std::vector<std::pair<const c10::StorageImpl*, std::shared_ptr<KeptStorage>>> kept_;
    std::optional<KeeperScope> scope_;
  };

 private:
  using Group = std::vector<std::weak_ptr<KeptStorage>>;
  struct Ended {
    Group kept;               // elsewhere
    std::vector<Group> left;  // the device at its end, of layers before it
  };
  struct Leaving {
    Group kept;
    uint32_t until = 0;
  };

  void copy_away(at::Device device, uint32_t layer, const std::vector<std::shared_ptr<KeptStorage>>& all);
  void leave_device(uint32_t end, std::vector<Group>* left);
  void backward_reaches(size_t layer);

  const std::shared_ptr<ActivationHost> host_;
  std::vector<Ended> layers_;
  std::deque<Leaving> leaving_;  // what is being copied
};

}  // namespace spillway::trainer
