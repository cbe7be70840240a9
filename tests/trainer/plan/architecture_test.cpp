// The tables of parameters, against the sizes that the models of these names are known to have, and what a
// model cannot be.
#include "trainer/plan/architecture.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>

#include "trainer/plan/parameters/parameter_table.h"

namespace spillway::trainer {
namespace {

using testing::HasSubstr;

Architecture gpt2_small() {
  Architecture model = Architecture::usual(Family::kGpt2, 12, 768, 12, 1024);
  model.vocabulary = 50257;
  return model;
}
Architecture llama_2_7b() {
  Architecture model = Architecture::usual(Family::kLlama, 32, 4096, 32, 4096);
  model.vocabulary = 32000, model.hidden = 11008;
  return model;
}
Architecture t5_small() {
  Architecture model = Architecture::usual(Family::kT5, 6, 512, 8, 512);
  model.vocabulary = 32128;
  return model;
}

TEST(ParameterTable, CountsWhatTheKnownModelsHave) {
  EXPECT_EQ(parameter_count(gpt2_small()), 124'439'808u);
  EXPECT_EQ(parameter_count(llama_2_7b()), 6'738'415'616u);
  EXPECT_EQ(parameter_count(t5_small()), 60'506'624u);
  Architecture mistral = llama_2_7b();  // 7B v0.1: grouped queries, a larger MLP
  mistral.key_value_heads = 8, mistral.hidden = 14336;
  EXPECT_EQ(parameter_count(mistral), 7'241'732'096u);
  Architecture t5_v1_1 = t5_small();  // google/t5-v1_1-small: gated, head of its own
  t5_v1_1.layers = t5_v1_1.decoder_layers = 8, t5_v1_1.heads = t5_v1_1.key_value_heads = 6;
  t5_v1_1.hidden = 1024, t5_v1_1.gated = true, t5_v1_1.tied_head = false;
  EXPECT_EQ(parameter_count(t5_v1_1), 76'961'152u);
}

TEST(ParameterTable, NamesEveryParameterOnceAndKeepsALayerTogether) {
  for (Architecture model : {gpt2_small(), llama_2_7b(), t5_small()}) {
    for (const bool tied : {true, false}) {
      model.tied_head = tied;
      std::set<std::string> names;
      int layer = -1;
      for (const Parameter& parameter : parameter_table(model)) {
        EXPECT_TRUE(names.insert(parameter.name).second) << parameter.name;
        EXPECT_TRUE(parameter.name.ends_with(parameter.key)) << parameter.name;
        EXPECT_TRUE(parameter.layer == layer || parameter.layer == layer + 1) << parameter.name;
        layer = parameter.layer;
      }
      EXPECT_EQ(layer + 1, int(model.all_layers()));
      EXPECT_EQ(names.count("lm_head.weight"), tied ? 0u : 1u);
    }
  }
}

TEST(SpanSizes, FillAnInputOfT5ExactlyWithItsUsualTarget) {
  const SpanSizes sizes = span_sizes(512);
  EXPECT_EQ(sizes.raw_tokens, 568u);
  EXPECT_EQ(sizes.target_tokens, 114u) << "as the T5 of the paper was trained";
  for (uint32_t context = 3; context < 2048; context += 5) {
    const SpanSizes each = span_sizes(context);
    ASSERT_EQ(each.raw_tokens - each.noise_tokens + each.spans + 1, context);
    ASSERT_EQ(each.noise_tokens + each.spans + 1, each.target_tokens);
    ASSERT_GE(each.noise_tokens, each.spans);
    ASSERT_GE(each.raw_tokens - each.noise_tokens, each.spans);
  }
}

TEST(Architecture, FaultsNameTheKey) {
  const auto broken = [](Family family, const auto& change) {
    Architecture model = Architecture::usual(family, 2, 32, 4, 16);
    EXPECT_EQ(fault_of(model), "");
    change(&model);
    return fault_of(model);
  };
  EXPECT_THAT(broken(Family::kGpt2, [](Architecture* m) { m->heads = 0; }), HasSubstr("model.heads"));
  EXPECT_THAT(broken(Family::kGpt2, [](Architecture* m) { m->width = 33; }), HasSubstr("multiple"));
  EXPECT_THAT(broken(Family::kGpt2, [](Architecture* m) { m->key_value_heads = 2; }),
              HasSubstr("only a llama"));
  EXPECT_THAT(broken(Family::kGpt2, [](Architecture* m) { m->decoder_layers = 1; }),
              HasSubstr("is for a t5"));
  EXPECT_THAT(broken(Family::kLlama, [](Architecture* m) { m->key_value_heads = 3; }), HasSubstr("multiple"));
  EXPECT_THAT(broken(Family::kLlama, [](Architecture* m) { m->head_width = 7; }), HasSubstr("even"));
  EXPECT_THAT(broken(Family::kLlama, [](Architecture* m) { m->gated = false; }), HasSubstr("model.gated"));
  EXPECT_THAT(broken(Family::kGpt2, [](Architecture* m) { m->gated = true; }), HasSubstr("model.gated"));
  EXPECT_THAT(broken(Family::kLlama, [](Architecture* m) { m->activation = Activation::kRelu; }),
              HasSubstr("\"silu\""));
  EXPECT_THAT(broken(Family::kT5, [](Architecture* m) { m->decoder_layers = 0; }), HasSubstr("at least 1"));
  EXPECT_THAT(broken(Family::kT5, [](Architecture* m) { m->buckets = 3; }), HasSubstr("model.buckets"));
  EXPECT_THAT(broken(Family::kT5, [](Architecture* m) { m->furthest_bucket = 16; }),
              HasSubstr("more than half"));
  EXPECT_THAT(broken(Family::kT5, [](Architecture* m) { m->context = 2; }), HasSubstr("at least 3"));
}

}  // namespace
}  // namespace spillway::trainer
