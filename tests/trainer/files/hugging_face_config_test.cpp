// config.json: the files of transformers 4 and 5 give the model they describe; a setting that the trainer
// does not have, and damage of any kind, is an error with the file's and the key's name.
#include "trainer/pretrained/hugging_face_config.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <random>

#include "tests/trainer/scratch_folder.h"
#include "trainer/plan/parameters/parameter_table.h"

namespace spillway::trainer {
namespace {

using nlohmann::json;
using testing::AllOf;
using testing::HasSubstr;

// As transformers 5.23.0 saves them, without the keys that no model depends on.
const json kGpt2 = json::parse(R"({"activation_function": "gelu_new", "add_cross_attention": false,
  "layer_norm_epsilon": 1e-05, "model_type": "gpt2", "n_embd": 48, "n_head": 4, "n_inner": null, "n_layer": 3,
  "n_positions": 64, "reorder_and_upcast_attn": false, "scale_attn_by_inverse_layer_idx": false,
  "scale_attn_weights": true, "tie_word_embeddings": true, "vocab_size": 99})");
const json kLlama = json::parse(R"({"attention_bias": false, "head_dim": 16, "hidden_act": "silu",
  "hidden_size": 64, "intermediate_size": 96, "max_position_embeddings": 128, "mlp_bias": false,
  "model_type": "llama", "num_attention_heads": 4, "num_hidden_layers": 2, "num_key_value_heads": 2,
  "pretraining_tp": 1, "rms_norm_eps": 1e-05, "rope_parameters": {"rope_theta": 500000.0, "rope_type": "default"},
  "tie_word_embeddings": false, "vocab_size": 320})");
const json kT5 = json::parse(R"({"d_ff": 96, "d_kv": 8, "d_model": 32, "dense_act_fn": "relu",
  "feed_forward_proj": "relu", "is_encoder_decoder": true, "is_gated_act": false, "layer_norm_epsilon": 1e-06,
  "model_type": "t5", "num_decoder_layers": 3, "num_heads": 4, "num_layers": 2,
  "relative_attention_max_distance": 100, "relative_attention_num_buckets": 16, "scale_decoder_outputs": true,
  "tie_word_embeddings": true, "vocab_size": 400})");

class HuggingFaceConfig : public testing::Test {
 protected:
  std::optional<Architecture> read_text(const std::string& text, uint32_t context, std::string* error) {
    ScratchFolder::write(path_, text);
    return read_hugging_face_config(path_, context, error);
  }
  Architecture read(const json& config, uint32_t context = 0) {
    std::string error;
    const auto model = read_text(config.dump(), context, &error);
    EXPECT_TRUE(model) << error;
    return model.value_or(Architecture{});
  }
  // Every error names the file.
  std::string error_of_text(const std::string& text, uint32_t context = 0) {
    std::string error;
    EXPECT_FALSE(read_text(text, context, &error)) << text;
    EXPECT_TRUE(error.starts_with(path_ + ": ")) << error;
    return error;
  }
  std::string error_with(json config, const json& changes, uint32_t context = 0) {
    config.update(changes);
    return error_of_text(config.dump(), context);
  }

  ScratchFolder scratch_;
  std::string path_ = scratch_.file("config.json");
};

json with(json config, const json& changes) {
  config.update(changes);
  return config;
}
json without(json config, const std::vector<std::string>& keys) {
  for (const std::string& key : keys) config.erase(key);
  return config;
}

TEST_F(HuggingFaceConfig, ReadsGpt2) {
  Architecture expected = Architecture::usual(Family::kGpt2, 3, 48, 4, 64);
  expected.vocabulary = 99;
  EXPECT_EQ(read(kGpt2), expected);
  EXPECT_EQ(read(kGpt2, 64), expected);
  EXPECT_EQ(read(without(kGpt2, {"n_inner", "tie_word_embeddings", "scale_attn_weights",
                                 "activation_function", "layer_norm_epsilon", "reorder_and_upcast_attn"})),
            expected)
      << "transformers' defaults";
  EXPECT_EQ(read(with(kGpt2, {{"n_inner", 50}})).hidden, 50u);
  EXPECT_FALSE(read(with(kGpt2, {{"tie_word_embeddings", false}})).tied_head);
  EXPECT_EQ(read(with(kGpt2, {{"layer_norm_epsilon", 1e-3}})).norm_epsilon, 1e-3);
}

TEST_F(HuggingFaceConfig, ReadsLlama) {
  Architecture expected = Architecture::usual(Family::kLlama, 2, 64, 4, 128);
  expected.vocabulary = 320, expected.hidden = 96, expected.key_value_heads = 2;
  expected.norm_epsilon = 1e-5, expected.rotary_base = 500000;
  EXPECT_EQ(read(kLlama), expected);
  EXPECT_EQ(read(kLlama, 32).context, 32u);
  const json version4 =
      with(without(kLlama, {"rope_parameters"}), {{"rope_theta", 500000}, {"rope_scaling", nullptr}});
  EXPECT_EQ(read(version4), expected);
  EXPECT_EQ(read(without(kLlama, {"head_dim", "attention_bias", "mlp_bias", "hidden_act", "pretraining_tp",
                                  "tie_word_embeddings"})),
            expected)
      << "transformers' defaults";
  EXPECT_EQ(read(with(kLlama, {{"num_key_value_heads", nullptr}})).key_value_heads, 4u);
  EXPECT_EQ(read(with(kLlama, {{"head_dim", 8}})).head_width, 8u);
  EXPECT_TRUE(read(with(kLlama, {{"tie_word_embeddings", true}})).tied_head);
  EXPECT_EQ(read(without(kLlama, {"rope_parameters"})).rotary_base, 10000);
  EXPECT_EQ(read(without(kLlama, {"rms_norm_eps"})).norm_epsilon, 1e-6);
}

TEST_F(HuggingFaceConfig, AMistralWithoutAWindowIsALlama) {
  const json mistral = with(kLlama, {{"model_type", "mistral"}});
  json open = mistral;
  open["sliding_window"] = nullptr;
  EXPECT_EQ(read(open), read(kLlama));
  for (const json& refused : {mistral, with(mistral, {{"sliding_window", 4096}})})
    EXPECT_THAT(error_of_text(refused.dump()), HasSubstr("'sliding_window' must be null for a mistral"));
  open.erase("num_key_value_heads");
  EXPECT_THAT(error_of_text(open.dump()), HasSubstr("'num_key_value_heads' is missing"));
}

TEST_F(HuggingFaceConfig, ReadsT5) {
  Architecture expected = Architecture::usual(Family::kT5, 2, 32, 4, 512);
  expected.decoder_layers = 3, expected.hidden = 96, expected.vocabulary = 400;
  expected.buckets = 16, expected.furthest_bucket = 100;
  EXPECT_EQ(read(kT5), expected);
  EXPECT_EQ(read(without(kT5, {"feed_forward_proj", "dense_act_fn", "is_gated_act", "is_encoder_decoder",
                               "layer_norm_epsilon", "scale_decoder_outputs", "tie_word_embeddings"})),
            expected)
      << "transformers' defaults";
  EXPECT_EQ(read(kT5, 4096).context, 4096u);
  EXPECT_EQ(read(with(kT5, {{"n_positions", 256}})).context, 256u);
  EXPECT_EQ(read(with(kT5, {{"num_decoder_layers", nullptr}})).decoder_layers, 2u);
  const Architecture sizes =
      read(without(kT5, {"relative_attention_max_distance", "relative_attention_num_buckets"}));
  EXPECT_EQ(sizes.buckets, 32u);
  EXPECT_EQ(sizes.furthest_bucket, 128u);
}

TEST_F(HuggingFaceConfig, TheActivationOfT5IsDerivedOrGiven) {
  const json bare = without(kT5, {"dense_act_fn", "is_gated_act"});
  const auto of = [&](const json& changes) {
    const Architecture model = read(with(bare, changes));
    return std::pair(model.gated, model.activation);
  };
  EXPECT_EQ(of({{"feed_forward_proj", "gated-gelu"}}), std::pair(true, Activation::kGeluTanh));
  EXPECT_EQ(of({{"feed_forward_proj", "gated-silu"}}), std::pair(true, Activation::kSilu));
  EXPECT_EQ(of({{"feed_forward_proj", "gelu"}}), std::pair(false, Activation::kGelu));
  EXPECT_EQ(of({{"feed_forward_proj", "gated-gelu"}, {"dense_act_fn", "gelu"}}),
            std::pair(true, Activation::kGelu));
  EXPECT_EQ(of({{"feed_forward_proj", "gated-gelu"}, {"is_gated_act", false}}),
            std::pair(false, Activation::kGeluTanh));
}

TEST_F(HuggingFaceConfig, AnUnscaledHeadOfT5IsNotTied) {
  EXPECT_FALSE(read(with(kT5, {{"scale_decoder_outputs", false}})).tied_head) << "as transformers 5 saves it";
  EXPECT_FALSE(
      read(with(without(kT5, {"scale_decoder_outputs"}), {{"tie_word_embeddings", false}})).tied_head)
      << "as transformers 4 saves it";
  EXPECT_THAT(error_with(kT5, {{"tie_word_embeddings", false}}),
              AllOf(HasSubstr("tie_word_embeddings"), HasSubstr("scale_decoder_outputs")));
}

TEST_F(HuggingFaceConfig, AContextMustFitTheModel) {
  EXPECT_THAT(error_of_text(kGpt2.dump(), 65), AllOf(HasSubstr("'n_positions' is 64"), HasSubstr("65")));
  EXPECT_THAT(error_of_text(kLlama.dump(), 129), HasSubstr("'max_position_embeddings' is 128"));
}

TEST_F(HuggingFaceConfig, ATrainingWithAnotherContextLeavesWhatTheModelWasMadeFor) {
  const auto written = [&](const json& config, uint32_t context) {
    return json::parse(hugging_face_config(read(config, context), {}));
  };
  EXPECT_EQ(read(with(kT5, {{"n_positions", 512}}), 64).context, 64u);
  EXPECT_EQ(written(with(kT5, {{"n_positions", 512}}), 64)["n_positions"], 512);
  EXPECT_EQ(written(with(kT5, {{"n_positions", 512}}), 0)["n_positions"], 512);
  EXPECT_EQ(written(kT5, 64)["n_positions"], 64) << "it names none";
  EXPECT_EQ(written(kLlama, 64)["max_position_embeddings"], 128);
  EXPECT_EQ(written(kGpt2, 32)["n_positions"], 64);
}

// Its first positions are learned; the weights stay those of the model.
TEST_F(HuggingFaceConfig, AGpt2OfAShorterContextKeepsItsTable) {
  const Architecture shorter = read(kGpt2, 32), whole = read(kGpt2);
  EXPECT_EQ(shorter.context, 32u);
  EXPECT_EQ(shorter.positions(), 64u);
  EXPECT_EQ(parameter_count(shorter), parameter_count(whole));
  EXPECT_THAT(to_string(shorter), HasSubstr("context=32")) << "no checkpoint of one goes on as the other";
  EXPECT_THAT(to_string(shorter), HasSubstr("positions=64"));
  EXPECT_THAT(to_string(whole), testing::Not(HasSubstr("positions")));
}

TEST_F(HuggingFaceConfig, ReadsTheDropoutThatOneRateCanSay) {
  const auto dropout = [&](const json& config) {
    std::string error;
    ScratchFolder::write(path_, config.dump());
    const auto found = read_hugging_face_dropout(path_, &error);
    EXPECT_TRUE(found) << error;
    return found.value_or(FileDropout{});
  };
  const auto gpt2 = [&](double embeddings, double residual, double attention) {
    return dropout(
        with(kGpt2, {{"embd_pdrop", embeddings}, {"resid_pdrop", residual}, {"attn_pdrop", attention}}));
  };
  EXPECT_EQ(dropout(kGpt2).rate, 0.1) << "transformers' default";
  EXPECT_EQ(gpt2(0.2, 0.2, 0.2).rate, 0.2);
  EXPECT_THAT(gpt2(0.2, 0.2, 0.2).left_out, HasSubstr("'attn_pdrop' is 0.2: attention is trained without"));
  EXPECT_EQ(gpt2(0.2, 0.2, 0).left_out, "");
  EXPECT_EQ(gpt2(0.2, 0.2, 0).fault, "");
  EXPECT_THAT(gpt2(0.1, 0.2, 0.2).fault, HasSubstr("'embd_pdrop' is 0.1, 'resid_pdrop' is 0.2 and 'attn_p"));
  EXPECT_THAT(gpt2(0, 0, 0.1).fault, HasSubstr("'attn_pdrop' is 0.1"));
  EXPECT_EQ(gpt2(0, 0, 0).rate, 0);
  EXPECT_EQ(dropout(with(kT5, {{"dropout_rate", 0.3}})).rate, 0.3);
  EXPECT_EQ(dropout(kLlama).fault, "");
  EXPECT_THAT(dropout(with(kLlama, {{"attention_dropout", 0.3}})).fault,
              HasSubstr("'attention_dropout' is 0.3"));
  std::string error;
  ScratchFolder::write(path_, with(kT5, {{"dropout_rate", "much"}}).dump());
  EXPECT_FALSE(read_hugging_face_dropout(path_, &error));
  EXPECT_THAT(error, HasSubstr("'dropout_rate'"));
}

struct Refused {
  const json* config;
  json changes;
  std::string says;
};

TEST_F(HuggingFaceConfig, RefusesMathematicsThatItDoesNotHave) {
  const auto rotary = [](const json& changes) {
    return json{{"rope_parameters", with({{"rope_theta", 10000.0}, {"rope_type", "default"}}, changes)}};
  };
  const Refused cases[] = {
      {&kGpt2, {{"scale_attn_by_inverse_layer_idx", true}}, "'scale_attn_by_inverse_layer_idx' is true"},
      {&kGpt2, {{"reorder_and_upcast_attn", true}}, "trained with false"},
      {&kGpt2, {{"add_cross_attention", true}}, "'add_cross_attention' is true"},
      {&kGpt2, {{"scale_attn_weights", false}}, "'scale_attn_weights' is false"},
      {&kGpt2, {{"activation_function", "tanh"}}, "'activation_function' is \"tanh\""},
      {&kGpt2, {{"quantization_config", {{"bits", 4}}}}, "'quantization_config'"},
      {&kLlama, {{"attention_bias", true}}, "'attention_bias' is true"},
      {&kLlama, {{"mlp_bias", true}}, "'mlp_bias' is true"},
      {&kLlama, {{"hidden_act", "gelu"}}, "'hidden_act' must be \"silu\""},
      {&kLlama, {{"hidden_act", "mish"}}, "'hidden_act' is \"mish\""},
      {&kLlama, {{"pretraining_tp", 2}}, "'pretraining_tp' is more than 1"},
      {&kLlama, {{"rope_scaling", {{"type", "linear"}, {"factor", 2.0}}}}, "'rope_scaling' is there"},
      {&kLlama, {{"partial_rotary_factor", 0.5}}, "'partial_rotary_factor' is not 1"},
      {&kLlama, rotary({{"rope_type", "llama3"}}), "\"llama3\""},
      {&kLlama, rotary({{"partial_rotary_factor", 0.5}}), "'partial_rotary_factor' is not 1"},
      {&kLlama, rotary({{"factor", 8.0}}), "has 'factor'"},
      {&kT5, {{"dense_act_fn", "tanh"}}, "'dense_act_fn' is \"tanh\""},
      {&kT5,
       {{"dense_act_fn", nullptr}, {"feed_forward_proj", "gated-tanh"}},
       "'feed_forward_proj' is \"tanh\""},
      {&kT5, {{"is_encoder_decoder", false}}, "'is_encoder_decoder' is false"},
      {&kT5, {{"tie_encoder_decoder", true}}, "'tie_encoder_decoder' is true"},
      {&kT5, {{"decoder_start_token_id", 2}}, "'decoder_start_token_id' is 2"},
      {&kT5, {{"pad_token_id", 1}}, "'pad_token_id' is 1"},
      {&kT5, {{"pad_token_id", -1}}, "'pad_token_id'"},
      {&kT5, {{"model_type", "mt5"}}, "'model_type' is \"mt5\""},
  };
  for (const Refused& refused : cases)
    EXPECT_THAT(error_with(*refused.config, refused.changes), HasSubstr(refused.says)) << refused.changes;
}

TEST_F(HuggingFaceConfig, ValuesOfTheWrongKindAreNamed) {
  const Refused cases[] = {
      {&kGpt2, {{"model_type", nullptr}}, "'model_type' is missing"},
      {&kGpt2, {{"model_type", 3}}, "'model_type' must be a text, not 3"},
      {&kGpt2, {{"n_layer", -1}}, "'n_layer' must be a whole number between 1 and 1000, not -1"},
      {&kGpt2, {{"n_layer", 0}}, "'n_layer'"},
      {&kGpt2, {{"n_layer", 1001}}, "'n_layer'"},
      {&kGpt2, {{"n_layer", 2.5}}, "not 2.5"},
      {&kGpt2, {{"n_layer", "2"}}, "not \"2\""},
      {&kGpt2, {{"n_layer", json::array()}}, "not an array"},
      {&kGpt2, {{"n_embd", UINT64_MAX}}, "'n_embd'"},
      {&kGpt2, {{"n_head", 1ull << 32 | 1}}, "'n_head'"},
      {&kGpt2, {{"n_head", 0}}, "'n_head'"},
      {&kGpt2, {{"n_head", 5}}, "must be a multiple"},
      {&kGpt2, {{"scale_attn_weights", 1}}, "'scale_attn_weights' must be true or false, not 1"},
      {&kGpt2, {{"layer_norm_epsilon", -1}}, "'layer_norm_epsilon' must be a number between 0 and 1"},
      {&kGpt2, {{"layer_norm_epsilon", "small"}}, "'layer_norm_epsilon'"},
      {&kLlama, {{"head_dim", nullptr}, {"hidden_size", 66}}, "'hidden_size' (66) must be a multiple"},
      {&kLlama, {{"head_dim", 15}}, "even"},
      {&kLlama, {{"num_key_value_heads", 3}}, "multiple"},
      {&kLlama, {{"rope_parameters", 3}}, "'rope_parameters' must be an object"},
      {&kLlama, {{"rope_parameters", {{"rope_theta", 0}}}}, "'rope_theta'"},
      {&kLlama, {{"rope_parameters", {{"rope_type", 7}}}}, "in 'rope_parameters': 'rope_type'"},
      {&kT5, {{"relative_attention_num_buckets", 3}}, "buckets"},
      {&kT5, {{"relative_attention_max_distance", 8}}, "furthest_bucket"},
  };
  for (const Refused& refused : cases)
    EXPECT_THAT(error_with(*refused.config, refused.changes), HasSubstr(refused.says)) << refused.changes;
}

TEST_F(HuggingFaceConfig, EverySizeMustBeThere) {
  const std::pair<const json*, std::vector<std::string>> sizes[] = {
      {&kGpt2, {"vocab_size", "n_layer", "n_embd", "n_head", "n_positions"}},
      {&kLlama,
       {"vocab_size", "num_hidden_layers", "hidden_size", "num_attention_heads", "intermediate_size",
        "max_position_embeddings"}},
      {&kT5, {"vocab_size", "num_layers", "d_model", "num_heads", "d_kv", "d_ff"}},
  };
  for (const auto& [config, keys] : sizes)
    for (const std::string& key : keys)
      EXPECT_THAT(error_of_text(without(*config, {key}).dump()), HasSubstr("'" + key + "' is missing"));
}

TEST_F(HuggingFaceConfig, AFileThatIsNoJsonObjectIsAnError) {
  for (const std::string text : {"{", "[]", "3", "{\"n_layer\": 1e999}", "\xff\xfe"})
    EXPECT_THAT(error_of_text(text), HasSubstr("no JSON object"));
  EXPECT_THAT(error_of_text(std::string(1 << 20, '[') + std::string(1 << 20, ']')),
              HasSubstr("no JSON object"));
  std::string error;
  EXPECT_FALSE(read_hugging_face_config(scratch_.file("missing.json"), 0, &error));
  EXPECT_THAT(error, HasSubstr("missing.json: cannot be read"));
  EXPECT_FALSE(read_hugging_face_config(scratch_.file(""), 0, &error)) << "a folder";
  EXPECT_THAT(error, HasSubstr("cannot be read"));
}

TEST_F(HuggingFaceConfig, DamagedFilesAreErrorsAndNotCrashes) {
  std::minstd_rand random(3);
  size_t refused = 0;
  for (int round = 0; round < 3000; ++round) {
    std::string text = (round % 3 == 0 ? kGpt2 : round % 3 == 1 ? kLlama : kT5).dump();
    for (int edits = 0; edits < 3; ++edits)
      text[random() % text.size()] = "0123456789-\"{}[],:e"[random() % 19];
    std::string error;
    const auto model = read_text(text, 0, &error);
    EXPECT_EQ(model.has_value(), error.empty()) << text;
    EXPECT_EQ(model ? fault_of(*model) : "", "") << text;
    refused += !model;
  }
  EXPECT_GT(refused, 1000u);
}

TEST_F(HuggingFaceConfig, WhatIsWrittenIsReadBack) {
  std::vector<Architecture> models;
  for (const Family family : kFamilies)
    for (const bool tied : {false, true}) {
      models.push_back(Architecture::usual(family, 3, 48, 4, 64));
      models.back().tied_head = tied;
    }
  for (const Activation activation :
       {Activation::kGelu, Activation::kGeluTanh, Activation::kRelu, Activation::kSilu})
    for (const bool gated : {false, true}) {
      models.push_back(Architecture::usual(Family::kT5, 2, 48, 4, 64));
      models.back().activation = activation, models.back().gated = gated;
      models.push_back(Architecture::usual(Family::kGpt2, 2, 48, 4, 64));
      models.back().activation = activation;
    }
  Architecture llama = Architecture::usual(Family::kLlama, 2, 48, 4, 64);
  llama.key_value_heads = 2, llama.head_width = 10, llama.rotary_base = 123456.75, llama.norm_epsilon = 3e-7;
  models.push_back(llama);
  Architecture t5 = Architecture::usual(Family::kT5, 2, 48, 4, 64);
  t5.decoder_layers = 5, t5.head_width = 7, t5.buckets = 8, t5.furthest_bucket = 33;
  models.push_back(t5);
  for (Architecture& model : models) {
    std::string error;
    const auto back = read_text(hugging_face_config(model, {}), 0, &error);
    ASSERT_TRUE(back) << error;
    EXPECT_EQ(to_string(*back), to_string(model));
    model.dropout = 0.25;
    EXPECT_EQ(read_text(hugging_face_config(model, {}), 0, &error), back) << "dropout is not read";
  }
}

TEST_F(HuggingFaceConfig, SaysWhatTransformersAsksFor) {
  const auto written = [](Family family) {
    return json::parse(hugging_face_config(Architecture::usual(family, 2, 48, 4, 64), {}));
  };
  EXPECT_EQ(written(Family::kGpt2)["architectures"], json({"GPT2LMHeadModel"}));
  EXPECT_EQ(written(Family::kLlama)["architectures"], json({"LlamaForCausalLM"}));
  const json t5 = written(Family::kT5);
  EXPECT_EQ(t5["architectures"], json({"T5ForConditionalGeneration"}));
  EXPECT_EQ(t5["decoder_start_token_id"], 0);
  EXPECT_EQ(t5["dtype"], "float32");
  EXPECT_TRUE(written(Family::kGpt2).at("eos_token_id").is_null()) << "50256 is no token of 256";
}

}  // namespace
}  // namespace spillway::trainer
