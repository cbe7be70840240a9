// AdamW with decoupled weight decay and clipping by the global norm, in two phases.
//
// `prepare` reads and may allocate; it has no effect and can be repeated. `commit` writes and allocates no
// device memory: it works in place, in tiles, and uses the gradients (which the step no longer needs) as
// scratch. The tiles are the same whether the moments are on the device or pass through it from the host, so
// that both places give the same bits.
//
// Thread-safety: one thread. Ownership: owns the moments and the tiles. Errors: LibTorch's exceptions, from
// `prepare`, `to_host` and `to_device`; after one of them every moment is in one place or the other, whole.
#pragma once
#include "trainer/config/config.h"
#include "trainer/libtorch.h"
#include "trainer/step/parameters.h"

namespace spillway::trainer {

// The learning rate of a step: a linear warm-up, then half a cosine down to the minimum.
double learning_rate(const TrainConfig& train, uint64_t step);

class AdamW {
 public:
  static constexpr int64_t kTileElements = 1 << 18;

  // Allocates the moments, zero, beside the parameters or on the host.
  AdamW(Parameters& parameters, const TrainConfig& train, Place place);

  void prepare();
  // `step` counts from 0.
  void commit(uint64_t step);
  double gradient_norm() const { return norm_; }

  void move_to(Place place);
  // The moments of parameters that were relocated follow them.
  void relocate(size_t first, size_t count, at::Device device);

  at::Tensor& first_moment(size_t index) { return moments_[index].first; }
  at::Tensor& second_moment(size_t index) { return moments_[index].second; }

 private:
  struct Moments {
    at::Tensor first, second;
    bool on_host = false;
  };
  struct Tiles {
    at::Tensor first, second;
  };

  // The numbers of one step as tensors of one element on the host, made once: LibTorch would wrap each plain
  // number in a fresh tensor for each use.
  struct Numbers {
    at::Tensor clip, keep, beta1, beta2, correction, epsilon;
  };

  void prepare_tiles();
  void set_numbers(uint64_t step);
  void update(size_t index);
  void update_tile(at::Tensor value, at::Tensor gradient, at::Tensor first, at::Tensor second,
                   bool decays) const;

  Parameters& parameters_;
  const TrainConfig train_;
  std::vector<Moments> moments_;
  std::map<int, Tiles> tiles_;  // by device index
  Numbers numbers_;
  double norm_ = 0, clip_ = 1, rate_ = 0;
};

}  // namespace spillway::trainer
