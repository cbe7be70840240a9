// Trainings of each family whose layers lie elsewhere than on their device, beside the plain run: with
// dropout, clipped gradients, two micro-batches and, in float16, a loss scale that overflows.
#pragma once
#include "tests/trainer/simulated.h"

namespace spillway::trainer {

struct Streams {
  Family family;
  Numerics numerics;
};

inline std::string case_of_streams(const testing::TestParamInfo<Streams>& info) {
  return std::string(name_of(info.param.family)) + "_" + case_name(info.param.numerics);
}

class BesideThePlainRun : public Simulated {
 protected:
  static constexpr uint64_t kSteps = kSanitized ? 3 : 20;

  struct Sizes {
    uint32_t layers = 4, width = 16, hidden = 0;  // hidden: 0 is the family's
  };
  ~BesideThePlainRun() override { EXPECT_EQ(violations(), ""); }

  void use(const Streams& streams, const Sizes& sizes) {
    const auto [family, numerics] = streams;
    Architecture model =
        small_model(family, sizes.layers, sizes.width, 2, family == Family::kT5 ? 12 : 8, 0.1);
    if (sizes.hidden != 0) model.hidden = sizes.hidden;
    if (family == Family::kLlama) model.key_value_heads = 1;
    if (family == Family::kT5) model.layers = model.decoder_layers = sizes.layers / 2;
    config_.train = {.steps = kSteps, .batch = 4, .clip = 0.5, .warmup = 2};
    config_.train.numerics = numerics;
    config_.train.loss_scale = 0x1p24;  // far too large
    config_.train.loss_scale_interval = 5;
    use(model);
  }
  void use(const Architecture& model) {
    config_.model = model;
    corpus_ = test_corpus(scratch_, config_.model);
    all_.clear();
    for (uint32_t layer = 0; layer < config_.model.all_layers(); ++layer) all_.insert(layer);
  }

  Outcome under(const Plan& plan) {
    return run(Injection::kNone, 0, kSteps, std::vector<Plan>(kSteps, plan)).outcome;
  }

  std::set<uint32_t> all_;
};

class StreamedTraining : public BesideThePlainRun, public testing::WithParamInterface<Streams> {
 protected:
  explicit StreamedTraining(const Sizes& sizes = {}) { use(GetParam(), sizes); }
};

// Matrices of 64 to 384 lines.
class TiledTraining : public StreamedTraining {
 protected:
  TiledTraining() : StreamedTraining({.layers = 2, .width = 128, .hidden = 256}) {}
};

}  // namespace spillway::trainer
