// Models of each family for tests that make text, and what an engine makes of prompts.
#pragma once
#include <ATen/CPUGeneratorImpl.h>
#include <gtest/gtest.h>

#include "tests/trainer/small_models.h"
#include "trainer/serve/engine/engine.h"

namespace spillway::trainer::serve {

inline Architecture serve_architecture(Family family) {
  Architecture model = small_model(family, 2, 16, 2, 96);
  if (family == Family::kLlama) model.key_value_heads = 1;
  if (family == Family::kT5) model.gated = true, model.decoder_layers = 3;
  return model;
}

// Weights that are larger than at the start of a training, so that no two logits are as good as equal.
inline std::vector<at::Tensor> serve_weights(const Architecture& architecture) {
  const at::Generator generator = at::make_generator<at::CPUGeneratorImpl>(5);
  std::vector<at::Tensor> weights = Model(architecture).initial_parameters(3);
  for (at::Tensor& values : weights) values.add_(at::empty_like(values).normal_(0, 0.3, generator));
  return weights;
}

struct Made {
  std::vector<int64_t> tokens;
  Finish finish = Finish::kNo;
  bool operator==(const Made&) const = default;
};

// `sequences` prompts of different lengths.
inline std::vector<Job> jobs_for(size_t sequences, double temperature, uint32_t max_tokens = 24) {
  std::vector<Job> jobs(sequences);
  for (size_t i = 0; i < sequences; ++i) {
    for (size_t token = 0; token < 1 + i * 11 % 37; ++token)
      jobs[i].prompt.push_back(int64_t(3 + (token * 7 + i * 31) % 200));
    jobs[i].max_tokens = max_tokens + uint32_t(i % 3);
    jobs[i].sampling = {.temperature = temperature, .seed = i};
  }
  return jobs;
}

inline std::vector<Made> made_by(
    Engine* engine, std::vector<Job> jobs, const std::function<void()>& after_step = [] {}) {
  std::vector<Made> made(jobs.size());
  for (size_t i = 0; i < jobs.size(); ++i) {
    Made* of = &made[i];
    jobs[i].on_token = [of](const TokenEvent& event) { return of->tokens.push_back(event.token), true; };
    jobs[i].on_end = [of](Finish finish) {
      EXPECT_EQ(of->finish, Finish::kNo) << "told once";
      of->finish = finish;
    };
    engine->submit(std::move(jobs[i]));
  }
  while (engine->step()) after_step();
  EXPECT_EQ(engine->stats().free_blocks, engine->stats().blocks);
  return made;
}

}  // namespace spillway::trainer::serve
