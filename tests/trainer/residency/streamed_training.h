// Trainings of each family whose layers lie elsewhere than on their device, beside the plain run: with
// dropout, clipped gradients, two micro-batches and, in float16, a loss scale that overflows.
#pragma once
#include "tests/trainer/simulated.h"

namespace spillway::trainer {

struct Streams {
  Family family;
  Numerics numerics;
};

class StreamedTraining : public Simulated, public testing::WithParamInterface<Streams> {
 protected:
  static constexpr uint64_t kSteps = 20;

  explicit StreamedTraining(uint32_t layers = 4) {
    const auto [family, numerics] = GetParam();
    config_.model = small_model(family, layers, 16, 2, family == Family::kT5 ? 12 : 8, 0.1);
    if (family == Family::kLlama) config_.model.key_value_heads = 1;
    if (family == Family::kT5) config_.model.layers = config_.model.decoder_layers = layers / 2;
    config_.train = {.steps = kSteps, .batch = 4, .clip = 0.5, .warmup = 2};
    config_.train.numerics = numerics;
    config_.train.loss_scale = 0x1p24;  // far too large
    config_.train.loss_scale_interval = 5;
    corpus_ = test_corpus(scratch_, config_.model);
    for (uint32_t layer = 0; layer < config_.model.all_layers(); ++layer) all_.insert(layer);
  }
  ~StreamedTraining() override { EXPECT_EQ(violations(), ""); }

  Outcome under(const Plan& plan) {
    return run(Injection::kNone, 0, kSteps, std::vector<Plan>(kSteps, plan)).outcome;
  }

  std::set<uint32_t> all_;
};

}  // namespace spillway::trainer
