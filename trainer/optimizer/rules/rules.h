// The optimizers, by name.
#pragma once
#include <map>
#include <utility>

#include "trainer/optimizer/adam/adam_kernel.h"
#include "trainer/optimizer/host_number.h"
#include "trainer/optimizer/quantization/gpu_kernel.h"
#include "trainer/optimizer/rules/kernels_by_device.h"
#include "trainer/optimizer/update_rule.h"

namespace spillway::trainer {

// Adam and AdamW: adam/adam_update.h. A tile is updated in one pass: on a CPU in vectors, on a GPU by
// adam/adam_kernel.h, or by LibTorch's operators where that cannot be had. The first two have the same bits,
// but for those of what is no number; the operators too, where LibTorch's root is the nearest number. States:
// the first and the second moment.
class AdamRule : public UpdateRule {
 public:
  using Kernels = KernelsByDevice<AdamKernel>;
  AdamRule(const TrainConfig& train, bool decoupled, Kernels::Make make = &AdamKernel::make)
      : train_(train), decoupled_(decoupled), kernels_(decoupled ? "AdamW" : "Adam", std::move(make)) {}
  void reserve(at::Device device, int64_t elements) override;
  void begin(const Update& update) override;
  bool works_at_once(at::Device device) const override { return !device.is_cuda() || kernels_.on(device); }
  bool apply_at_once(const Tile& tile) override;
  void apply(const Tile& tile) override;
  // On any device. REQUIRES: reserve_operators(device, elements of the tile).
  void apply_by_operators(const Tile& tile);
  void reserve_operators(at::Device device, int64_t elements);
  std::vector<std::string> remarks() const override { return kernels_.remarks(); }

 private:
  AdamUpdate update_of(const Tile& tile) const;

  const TrainConfig train_;
  const bool decoupled_;
  Kernels kernels_;
  std::map<int, at::Tensor> products_;  // by device index: room for operators
  AdamNumbers numbers_;                 // of what decays
  HostNumber decay_, keep_, beta1_, of_first_, beta2_, of_second_, rate_, correction_, epsilon_;
};

// AdamW whose moments are kept in 8 bits, of Dettmers et al., "8-bit Optimizers via Block-wise Quantization"
// (2022). Parameters of fewer than kLeastQuantizedElements keep them in 32. A block is updated in one pass:
// on a CPU by quantization/blockwise_adamw.h, on a GPU by quantization/gpu_kernel.h, or by LibTorch's
// operators where that cannot be had. Of these the first two have the same bits, but for those of what is no
// number; the operators too, where LibTorch's root is the nearest number.
// States: codes and scales of both moments.
class QuantizedAdamWRule : public UpdateRule {
 public:
  using Kernels = KernelsByDevice<BlockwiseKernel>;
  explicit QuantizedAdamWRule(const TrainConfig& train, Kernels::Make make = &BlockwiseKernel::make)
      : train_(train), small_(train, true), kernels_("8-bit AdamW", std::move(make)) {}
  void reserve(at::Device device, int64_t elements) override;
  void begin(const Update& update) override;
  bool apply_at_once(const Tile& tile) override;
  void apply(const Tile& tile) override;
  std::vector<std::string> remarks() const override { return kernels_.remarks(); }
  // The same by operators, on any device. REQUIRES: reserve_operators(device, elements of the tile).
  void apply_by_operators(const Tile& tile);
  void reserve_operators(at::Device device, int64_t elements);

 private:
  struct Map {
    at::Tensor numbers, thresholds;
  };
  // Room for one tile, in whole blocks.
  struct Room {
    at::Tensor first, second, rounded, index, by_scale;
    Map first_map, second_map;
  };

  BlockwiseUpdate update_of(const Tile& tile) const;
  void apply_in_one_pass(const Tile& tile) const;

  const TrainConfig train_;
  AdamRule small_;
  Kernels kernels_;
  std::map<int, Room> rooms_;  // by device index
  AdamWNumbers numbers_;
  float kept_ = 1;  // by the weight decay, where it applies
  HostNumber keep_, beta1_, beta2_, rest1_, rest2_, rate_, correction_, epsilon_;
};

// Gradient descent with momentum, as torch.optim.SGD computes it. State: the momentum.
class SgdRule : public UpdateRule {
 public:
  explicit SgdRule(const TrainConfig& train) : train_(train) {}
  void begin(const Update& update) override;
  void apply(const Tile& tile) override;

 private:
  const TrainConfig train_;
  HostNumber momentum_;
  double rate_ = 0;
};

// Of Shazeer and Stern, "Adafactor: Adaptive Learning Rates with Sublinear Memory Cost" (2018), without a
// first moment, by the schedule's learning rate times the parameter's size; as transformers' Adafactor with
// scale_parameter. States of a matrix: means of the squared gradients by row and by column, and of a vector
// the squares themselves.
class AdafactorRule : public UpdateRule {
 public:
  AdafactorRule(const TrainConfig& train, size_t parameters) : train_(train), next_(parameters) {}
  void prepare(const Update& update, const Updated& of) override;
  bool prepares() const override { return true; }
  void begin(const Update&) override {}
  void apply(const Tile& tile) override;
  void finish(const Updated& of) override;

 private:
  // What the coming update makes of the states, and what follows from it.
  struct Next {
    std::vector<at::Tensor> states;
    at::Tensor row_factor, factor;  // of a matrix's rows and columns; of a vector `factor` alone
    int64_t columns = 0;            // 0: a vector
    double rate = 0, limit = 1;     // relative to the size of the parameter; the update is divided by it
  };

  void prepare_matrix(const Update& update, const Updated& of, Next* next) const;
  void prepare_vector(const Update& update, const Updated& of, Next* next) const;
  at::Tensor tile_of(const at::Tensor& gradient, const Next& next, int64_t begin) const;
  double update_size(const Update& update, const Updated& of, const Next& next) const;

  const TrainConfig train_;
  std::vector<Next> next_;
  HostNumber keep_;
};

}  // namespace spillway::trainer
