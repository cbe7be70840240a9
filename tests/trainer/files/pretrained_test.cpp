// Weights of others: found in one file or several, compared with the table of parameters, read as floats; and
// a saved model is read back.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <bit>

#include <cmath>
#include <cstring>
#include <limits>
#include <nlohmann/json.hpp>

#include "tests/trainer/scratch_folder.h"
#include "trainer/pretrained/hugging_face_config.h"
#include "trainer/pretrained/save.h"
#include "trainer/pretrained/text_marks.h"
#include "trainer/pretrained/weights.h"

namespace spillway::trainer {
namespace {

using safetensors::Item;
using testing::AllOf;
using testing::HasSubstr;

constexpr const char* kIndex = "model.safetensors.index.json";

Item item(const std::string& name, std::vector<int64_t> shape, float value = 1) {
  return {name, "F32", std::move(shape), [value](std::span<std::byte> bytes) {
            for (size_t i = 0; i < bytes.size(); i += sizeof value)
              std::memcpy(&bytes[i], &value, sizeof value);
          }};
}

std::vector<Item> items_of(const Architecture& model) {
  std::vector<Item> items;
  for (const Parameter& parameter : parameter_table(model))
    items.push_back(item(parameter.name, parameter.sizes, float(items.size())));
  return items;
}

Architecture small(Family family) {
  return Architecture::usual(family, 2, 12, 2, 8);
}

class Pretrained : public testing::Test {
 protected:
  void save(const std::vector<Item>& items, const std::string& file = "model.safetensors") {
    std::string error;
    ASSERT_TRUE(safetensors::write(scratch_.file(file), items, {}, &error)) << error;
  }
  void index(const std::string& map) {
    ScratchFolder::write(scratch_.file(kIndex), R"({"metadata": {}, "weight_map": )" + map + "}");
  }
  std::string folder() { return scratch_.file(""); }
  std::string open_error() {
    std::string error;
    EXPECT_FALSE(Shards::open(folder(), &error));
    return error;
  }
  // "" when the weights are the model's.
  std::string check(const Architecture& model) {
    std::string error;
    const auto shards = Shards::open(folder(), &error);
    if (!shards) return error;
    const bool fits = check_weights(*shards, parameter_table(model), &error);
    EXPECT_EQ(fits, error.empty());
    return error;
  }
  std::string check_with(const Architecture& model, const Item& extra) {
    std::vector<Item> items = items_of(model);
    items.push_back(extra);
    save(items);
    return check(model);
  }

  ScratchFolder scratch_;
};

TEST_F(Pretrained, ASavedModelIsReadBack) {
  for (const Family family : kFamilies) {
    const Architecture model = small(family);
    const std::string folder = scratch_.file(std::string("deep/") + name_of(family));
    std::string error;
    ASSERT_TRUE(save_pretrained(folder, model, {}, items_of(model), &error)) << error;
    EXPECT_EQ(read_hugging_face_config(folder + "/config.json", 0, &error), model) << error;
    const auto shards = Shards::open(folder, &error);
    ASSERT_TRUE(shards) << error;
    EXPECT_TRUE(check_weights(*shards, parameter_table(model), &error)) << error;
    const auto file = safetensors::File::open(folder + "/model.safetensors", &error);
    EXPECT_EQ(file->metadata().at("format"), "pt") << "without it transformers refuses the file";
    float value = 0;
    for (const Parameter& parameter : parameter_table(model)) {
      std::vector<float> values(parameter.elements());
      ASSERT_TRUE(read_floats(*find_weight(*shards, parameter.name), values));
      EXPECT_THAT(values, testing::Each(value)) << parameter.name;
      ++value;
    }
  }
}

// Of a text that is made with the model: without an end it goes on until it may not.
TEST_F(Pretrained, WhatBeginsAndEndsATextIsKept) {
  const Architecture model = small(Family::kLlama);
  const auto again = [&](const TextMarks& marks) {
    std::string error;
    EXPECT_TRUE(save_pretrained(folder(), model, marks, items_of(model), &error)) << error;
    return text_marks_of(folder(), model.vocabulary);
  };
  using Tokens = std::vector<int64_t>;
  const TextMarks one = again({.begin = Tokens{3}, .end = Tokens{7}});
  EXPECT_EQ(one.begin, Tokens{3});
  EXPECT_EQ(one.end, Tokens{7});
  EXPECT_EQ(again({.begin = {}, .end = Tokens{5, 9}}).end, (Tokens{5, 9}));
  const nlohmann::json none =
      nlohmann::json::parse(hugging_face_config(model, {.begin = Tokens{}, .end = Tokens{}}));
  EXPECT_TRUE(none.at("eos_token_id").is_null());
  ScratchFolder::write(folder() + "/generation_config.json", R"({"eos_token_id": [1, 4, 100000]})");
  EXPECT_EQ(text_marks_of(folder(), model.vocabulary).end, (Tokens{1, 4})) << "100000 is no token of it";
  EXPECT_EQ(text_marks_of(scratch_.file("nowhere"), model.vocabulary).end, std::nullopt);
}

TEST_F(Pretrained, ASaveThatFailsNamesTheFile) {
  const Architecture model = small(Family::kGpt2);
  std::string error;
  ScratchFolder::write(scratch_.file("file"), "");
  EXPECT_FALSE(save_pretrained(scratch_.file("file"), model, {}, items_of(model), &error));
  EXPECT_THAT(error, AllOf(HasSubstr("cannot make the folder"), HasSubstr("file")));
  std::filesystem::create_directories(scratch_.file("config.json"));
  EXPECT_FALSE(save_pretrained(folder(), model, {}, items_of(model), &error));
  EXPECT_THAT(error, AllOf(HasSubstr("cannot write"), HasSubstr("config.json")));
  EXPECT_FALSE(std::filesystem::exists(scratch_.file("config.json.tmp")));
}

TEST_F(Pretrained, ShardsAreFoundByTheIndex) {
  save({item("a", {2}, 1), item("b", {3}, 2)}, "one.safetensors");
  save({item("c", {4}, 3)}, "two.safetensors");
  index(R"({"a": "one.safetensors", "b": "one.safetensors", "c": "two.safetensors"})");
  std::string error;
  const auto shards = Shards::open(folder(), &error);
  ASSERT_TRUE(shards) << error;
  EXPECT_THAT(shards->names(), testing::ElementsAre("a", "b", "c"));
  EXPECT_EQ(shards->find("c")->shape, std::vector<int64_t>{4});
  EXPECT_EQ(shards->find("d"), nullptr);
  save({item("alone", {2})});
  EXPECT_THAT(Shards::open(folder(), &error)->names(), testing::ElementsAre("alone"))
      << "one file goes before the index";
}

TEST_F(Pretrained, AnIndexThatDoesNotHoldIsAnError) {
  EXPECT_THAT(open_error(), HasSubstr("neither model.safetensors nor"));
  save({item("a", {2})}, "one.safetensors");
  save({item("a", {2})}, "two.safetensors");
  const std::pair<const char*, const char*> cases[] = {
      {"[]", "'weight_map' must be an object"},
      {"{}", "'weight_map' must be an object"},
      {R"({"a": 3})", "the file of tensor 'a' must be a text"},
      {R"({"a": "../one.safetensors"})", "must be in this folder, not '../one.safetensors'"},
      {R"({"a": "/etc/passwd"})", "must be in this folder"},
      {R"({"a": ".."})", "must be in this folder"},
      {R"({"a": "."})", "must be in this folder"},
      {R"({"a": ""})", "must be in this folder"},
      {R"({"a": "one.safetensors\u0000"})", "must be in this folder"},
      {R"({"a": "none.safetensors"})", "none.safetensors: No such file"},
      {R"({"a": "one.safetensors", "b": "one.safetensors"})", "'b' is not in 'one.safetensors'"},
      {R"({"a": "one.safetensors", "b": "two.safetensors"})", "'a' is in 'one.safetensors' too"},
  };
  for (const auto& [map, says] : cases) {
    index(map);
    EXPECT_THAT(open_error(), HasSubstr(says)) << map;
  }
  ScratchFolder::write(scratch_.file(kIndex), "{");
  EXPECT_THAT(open_error(), AllOf(HasSubstr(kIndex), HasSubstr("no JSON object")));
  ScratchFolder::write(scratch_.file(kIndex), "{}");
  EXPECT_THAT(open_error(), HasSubstr("'weight_map' must be an object"));
  ScratchFolder::write(scratch_.file("model.safetensors"), "none");
  EXPECT_THAT(open_error(), AllOf(HasSubstr("model.safetensors: "), HasSubstr("too short")));
}

TEST_F(Pretrained, EveryParameterMustFit) {
  const Architecture model = small(Family::kGpt2);
  const std::string name = "transformer.h.0.attn.c_attn.weight";
  const auto changed = [&](const auto& change) {
    std::vector<Item> items = items_of(model);
    for (size_t i = 0; i < items.size(); ++i)
      if (items[i].name == name) change(&items, i);
    save(items);
    return check(model);
  };
  EXPECT_EQ(changed([](auto*, size_t) {}), "");
  EXPECT_THAT(changed([](auto* items, size_t i) { (*items)[i].shape = {36, 12}; }),
              HasSubstr("tensor '" + name + "' has shape [36, 12], and the model needs [12, 36]"));
  EXPECT_THAT(changed([](auto* items, size_t i) { (*items)[i].type = "I64"; }),
              HasSubstr("tensor '" + name + "' has type I64"));
  EXPECT_THAT(changed([](auto* items, size_t i) { items->erase(items->begin() + long(i)); }),
              AllOf(HasSubstr(folder()), HasSubstr("tensor '" + name + "' is missing")));
}

TEST_F(Pretrained, AHeadOfItsOwnMustBeThere) {
  Architecture model = small(Family::kT5);
  save(items_of(model));
  model.tied_head = false;
  EXPECT_THAT(check(model), HasSubstr("'lm_head.weight' is missing, and by config.json"));
  save(items_of(model));
  EXPECT_EQ(check(model), "");
}

TEST_F(Pretrained, ABaseModelsNamesAreTaken) {
  for (const Family family : {Family::kGpt2, Family::kLlama}) {
    Architecture model = small(family);
    model.tied_head = true;
    std::vector<Item> items = items_of(model);
    for (Item& item : items) item.name = item.name.substr(item.name.find('.') + 1);
    save(items);
    EXPECT_EQ(check(model), "");
    items.push_back(item(parameter_table(model)[2].name, parameter_table(model)[2].sizes));
    save(items);
    EXPECT_THAT(check(model), HasSubstr("is none of the model's")) << "one of two";
  }
}

TEST_F(Pretrained, OnlyHarmlessTensorsArePassedOver) {
  const Architecture gpt2 = small(Family::kGpt2), llama = small(Family::kLlama), t5 = small(Family::kT5);
  EXPECT_EQ(check_with(gpt2, item("transformer.h.0.attn.bias", {1, 1, 8, 8})), "");
  EXPECT_EQ(check_with(gpt2, item("h.1.attn.masked_bias", {1})), "");
  EXPECT_EQ(check_with(llama, item("model.layers.0.self_attn.rotary_emb.inv_freq", {3})), "");
  EXPECT_EQ(
      check_with(t5, item("decoder.block.0.layer.1.EncDecAttention.relative_attention_bias.weight", {32, 2})),
      "");
  EXPECT_THAT(check_with(llama, item("model.layers.0.self_attn.q_proj.bias", {12})),
              HasSubstr("tensor 'model.layers.0.self_attn.q_proj.bias' is none of the model's"));
  EXPECT_THAT(check_with(gpt2, item("transformer.h.2.ln_1.weight", {12})),
              HasSubstr("tensor 'transformer.h.2.ln_1.weight' is none"));
}

TEST_F(Pretrained, CopiesOfTheEmbeddingMustEqualIt) {
  const Architecture gpt2 = small(Family::kGpt2), t5 = small(Family::kT5);
  EXPECT_EQ(check_with(gpt2, item("lm_head.weight", {256, 12}, 0)), "")
      << "the embedding's values are 0 here";
  EXPECT_THAT(check_with(gpt2, item("lm_head.weight", {256, 12}, 1)),
              HasSubstr("tensor 'lm_head.weight' differs from the embedding"));
  for (const char* copy : {"encoder.embed_tokens.weight", "decoder.embed_tokens.weight", "lm_head.weight"}) {
    EXPECT_EQ(check_with(t5, item(copy, {384, 12}, 0)), "");
    EXPECT_THAT(check_with(t5, item(copy, {384, 12}, 1)), HasSubstr("differs from the embedding"));
    EXPECT_THAT(check_with(t5, item(copy, {12, 384}, 0)), HasSubstr("differs from the embedding"));
  }
}

template <typename Value>
safetensors::StoredTensor tensor_of(const std::string& type, const std::vector<Value>& values) {
  return {type, {int64_t(values.size())}, std::as_bytes(std::span(values))};
}

TEST(ReadFloats, TakesFloatsAsTheyAre) {
  const std::vector<float> values = {1.5f, -0.0f, std::numeric_limits<float>::denorm_min(), INFINITY};
  std::vector<float> out(4);
  ASSERT_TRUE(read_floats(tensor_of("F32", values), out));
  for (size_t i = 0; i < out.size(); ++i)
    EXPECT_EQ(std::bit_cast<uint32_t>(out[i]), std::bit_cast<uint32_t>(values[i]));
  EXPECT_TRUE(read_floats(tensor_of("F32", std::vector<float>{}), {}));
}

// Against the definition of the type: sign, exponent and fraction.
TEST(ReadFloats, ConvertsEveryHalfExactly) {
  std::vector<uint16_t> all(1 << 16);
  for (size_t i = 0; i < all.size(); ++i) all[i] = uint16_t(i);
  std::vector<float> out(all.size());
  ASSERT_TRUE(read_floats(tensor_of("F16", all), out));
  for (const uint16_t bits : all) {
    const int exponent = bits >> 10 & 31, fraction = bits & 1023;
    const float sign = bits >> 15 ? -1.f : 1.f;
    ASSERT_EQ(std::signbit(out[bits]), bits >> 15 != 0) << bits;
    if (exponent == 31 && fraction != 0) {
      ASSERT_TRUE(std::isnan(out[bits])) << bits;
    } else {
      const float size = exponent == 31  ? INFINITY
                         : exponent == 0 ? std::ldexp(float(fraction), -24)
                                         : std::ldexp(float(fraction + 1024), exponent - 25);
      ASSERT_EQ(out[bits], sign * size) << bits;
    }
  }
}

TEST(ReadFloats, ConvertsBrainFloatsByTheirUpperBits) {
  const std::vector<uint16_t> values = {0x3f80, 0xc020, 0x0001, 0x8000, 0x7f80};
  std::vector<float> out(5);
  ASSERT_TRUE(read_floats(tensor_of("BF16", values), out));
  EXPECT_THAT(out, testing::ElementsAre(1, -2.5f, std::ldexp(1.f, -133), 0, INFINITY));
  EXPECT_TRUE(std::signbit(out[3]));
}

TEST(ReadFloats, RefusesOtherTypesAndSizes) {
  const std::vector<uint16_t> halves = {1, 2, 3, 4};
  std::vector<float> out(4, 7);
  EXPECT_FALSE(read_floats(tensor_of("I16", halves), out));
  EXPECT_FALSE(read_floats(tensor_of("F32", halves), out));
  EXPECT_FALSE(read_floats(tensor_of("F16", std::vector<uint16_t>(5)), out));
  EXPECT_THAT(out, testing::Each(7));
  ASSERT_TRUE(
      read_floats({"F16", {3}, std::as_bytes(std::span(halves)).subspan(1, 6)}, std::span(out).first(3)))
      << "bytes at an odd address";
  EXPECT_EQ(out[0], std::ldexp(512.f, -24));
}

}  // namespace
}  // namespace spillway::trainer
