// Training from a file of pairs: its rows, their order, what a configuration takes from it, and that no file
// leads out of bounds.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>
#include <set>

#include "tests/trainer/data/pair_files.h"
#include "tests/trainer/small_models.h"
#include "trainer/config/config.h"
#include "trainer/data/examples.h"
#include "trainer/data/mix.h"

namespace spillway::trainer {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;

Architecture model_of_pairs() {
  Architecture model = small_model(Family::kT5, 1, 8, 1, 12);
  model.target = 8;
  return model;
}

class PairCorpus : public testing::Test {
 protected:
  // "" where it opens.
  std::string fault(const WrittenPairs& written) { return fault_of_bytes(written.bytes()); }
  std::string fault_of_bytes(const std::string& bytes) {
    ScratchFolder::write(scratch_.file("pairs"), bytes);
    std::string error;
    return Corpus::open(scratch_.file("pairs"), 0.1, 0, &error) ? "" : error;
  }
  static std::string with(const char* from, const char* to) {
    std::string metadata = WrittenPairs{}.metadata;
    return metadata.replace(metadata.find(from), std::string(from).size(), to);
  }
  std::string config_fault(const std::string& model) {
    std::string error;
    const auto config =
        parse_config("[data]\ncorpus = \"" + scratch_.file("pairs") + "\"\n[model]\n" + model, {}, &error);
    config_ = config.value_or(Config{});
    return error;
  }
  const ScratchFolder scratch_;
  Config config_;
};

TEST_F(PairCorpus, ARowIsASourceAndATargetEachWithItsPadding) {
  WrittenPairs written;
  for (int32_t i = 0; i < 10; ++i) {
    written.sources.add({100 + i, 101 + i, 1});
    written.targets.add({200 + i, 1});
  }
  for (const std::string type : {"U16", "I32"}) {
    written.type = type;
    const Corpus corpus = pair_corpus(scratch_, written);
    const Architecture model = model_of_pairs();
    ASSERT_EQ(Examples::fault_of(model, corpus.vocabulary()), "");
    const Examples examples(corpus, model);
    ASSERT_EQ(examples.row_tokens(), 20u);
    std::vector<int64_t> row(20);
    examples.validation_row(0, 1, row);
    EXPECT_THAT(row,
                ElementsAre(109, 110, 1, -1, -1, -1, -1, -1, -1, -1, -1, -1, 209, 1, -1, -1, -1, -1, -1, -1));
    EXPECT_EQ(corpus.size(), 20u) << "tokens of targets";
    EXPECT_EQ(corpus.text_bytes(), 4000u);
    EXPECT_NEAR(corpus.unigram_entropy(), 0.5 * std::log(2) + 0.5 * std::log(20), 1e-9);
  }
}

TEST_F(PairCorpus, EveryPassHasEachTrainingPairOnceInAnOrderOfItsOwn) {
  const Corpus corpus = pair_corpus(scratch_, counting_pairs(120));
  const Examples examples(corpus, model_of_pairs());
  constexpr uint32_t kTraining = 108;  // all but a tenth
  const auto pass = [&](uint64_t seed, uint64_t number) {
    std::vector<int64_t> tokens(size_t{kTraining} * examples.row_tokens());
    examples.draw(seed, number * kTraining, kTraining, tokens);
    std::vector<std::vector<int64_t>> rows;
    for (auto it = tokens.begin(); it != tokens.end(); it += examples.row_tokens())
      rows.emplace_back(it, it + examples.row_tokens());
    return rows;
  };
  auto first = pass(1, 0), second = pass(1, 1), other = pass(2, 0);
  EXPECT_NE(first, second);
  EXPECT_NE(first, other);
  EXPECT_EQ(first, pass(1, 0));
  std::vector<int64_t> row(examples.row_tokens());
  examples.draw(1, 5, 1, row);
  EXPECT_EQ(row, first[5]) << "a row is of its place alone";
  for (auto* rows : {&first, &second, &other}) std::sort(rows->begin(), rows->end());
  EXPECT_EQ(first, second);
  EXPECT_EQ(first, other);
  EXPECT_EQ(std::set(first.begin(), first.end()).size(), kTraining);
  for (uint32_t i = 0; i < 12; ++i) {
    examples.validation_row(i, 12, row);
    EXPECT_FALSE(std::binary_search(first.begin(), first.end(), row)) << i;
  }
}

TEST(Shuffled, IsAPermutationOfAnyCountThatMovesMost) {
  for (const uint64_t count : {1, 2, 3, 4, 5, 16, 17, 1000}) {
    std::set<uint64_t> places;
    uint64_t fixed = 0;
    for (uint64_t i = 0; i < count; ++i) {
      const uint64_t place = shuffled(i, count, 7);
      EXPECT_LT(place, count);
      places.insert(place);
      fixed += place == i;
    }
    EXPECT_EQ(places.size(), count);
    if (count == 1000) {
      EXPECT_LT(fixed, 10u);
    }
  }
  EXPECT_LT(shuffled((uint64_t{1} << 40) - 1, uint64_t{1} << 40, 1), uint64_t{1} << 40);
}

TEST_F(PairCorpus, TheLengthsOfAModelAreThoseOfTheFileUnlessItSaysOthers) {
  pair_corpus(scratch_, counting_pairs(120));
  EXPECT_EQ(config_fault("family = \"t5\"\n"), "");
  EXPECT_EQ(config_.model.context, 12u);
  EXPECT_EQ(config_.model.target_tokens(), 8u);
  EXPECT_EQ(config_.model.row_tokens(), 20u);
  EXPECT_EQ(config_.model.vocabulary, 384u);
  EXPECT_EQ(config_fault("family = \"t5\"\ncontext = 16\ntarget = 9\n"), "");
  EXPECT_EQ(config_.model.row_tokens(), 25u);
  Architecture longer = model_of_pairs();
  ++longer.target;
  EXPECT_NE(to_string(longer), to_string(model_of_pairs())) << "a checkpoint of one is none of the other";
  EXPECT_THAT(config_fault("family = \"t5\"\ncontext = 11\n"),
              HasSubstr("'model.context' (11) must be at least 12, as the longest source"));
  EXPECT_THAT(config_fault("family = \"t5\"\ntarget = 7\n"), HasSubstr("--target-tokens 7"));
  EXPECT_THAT(config_fault("family = \"t5\"\nvocabulary = 383\n"), HasSubstr("at least 384"));
  EXPECT_THAT(config_fault("family = \"gpt2\"\n"),
              HasSubstr("pairs, which a t5 learns from, and not a gpt2"));
  EXPECT_THAT(config_fault("family = \"llama\"\ntarget = 8\n"), HasSubstr("'model.target' is for a t5"));
  scratch_.corpus();
  std::string error;
  EXPECT_FALSE(parse_config(
      "[data]\ncorpus = \"" + scratch_.file("corpus.txt") + "\"\n[model]\nfamily = \"t5\"\ntarget = 8\n", {},
      &error));
  EXPECT_THAT(error, HasSubstr("'data.corpus' has no pairs"));
  const auto unread = parse_config(
      "[data]\ncorpus = \"not there\"\n[model]\nfamily = \"t5\"\ncontext = 7\ntarget = 3\n", {}, &error);
  EXPECT_TRUE(unread) << error;
  EXPECT_EQ(unread.value_or(Config{}).model.row_tokens(), 10u) << "for a plan alone";
}

TEST_F(PairCorpus, APretrainedModelKeepsThePositionsThatItWasMadeFor) {
  pair_corpus(scratch_, counting_pairs(120));
  ScratchFolder::write(scratch_.file("config.json"),
                       R"({"d_ff": 96, "d_kv": 8, "d_model": 32, "feed_forward_proj": "relu",
                           "is_encoder_decoder": true, "model_type": "t5", "num_heads": 4, "num_layers": 2,
                           "n_positions": 512, "vocab_size": 384, "dropout_rate": 0})");
  EXPECT_EQ(config_fault("pretrained = \"" + scratch_.file("") + "\"\n"), "");
  EXPECT_EQ(config_.model.context, 12u);
  EXPECT_EQ(config_.model.positions(), 512u) << "what it is saved with";
}

TEST_F(PairCorpus, WhatIsWrongWithItsMetadataIsSaid) {
  WrittenPairs written = counting_pairs(40);
  EXPECT_EQ(fault(written), "");
  const auto of = [&](const char* from, const char* to) {
    written.metadata = with(from, to);
    return fault(written);
  };
  EXPECT_THAT(of("pairs 1", "pairs 2"),
              AllOf(HasSubstr("\"spillway-tokens 1\""), HasSubstr("\"spillway-pairs 1\"")));
  for (const char* length : {"0", "-1", "x", "9999999"}) {
    EXPECT_THAT(of("\"12\"", ("\"" + std::string(length) + "\"").c_str()), HasSubstr("'longest_source'"));
    EXPECT_THAT(of("\"8\"", ("\"" + std::string(length) + "\"").c_str()), HasSubstr("'longest_target'"));
  }
  EXPECT_THAT(of("\"384\"", "\"0\""), HasSubstr("'vocabulary' must be"));
  EXPECT_THAT(of("\"eos\":\"1\"", "\"eos\":\"384\""), HasSubstr("'eos'"));
  EXPECT_THAT(of("\"pad\":\"0\"", "\"pad\":\"384\""), HasSubstr("'pad'"));
  EXPECT_THAT(of("\"decoder_start\":\"0\"", "\"decoder_start\":\"x\""), HasSubstr("'decoder_start'"));
  EXPECT_THAT(of("\"decoder_start\":\"0\"", "\"decoder_start\":\"x\""), HasSubstr("make it again"));
  EXPECT_THAT(of("\"decoder_start\":\"0\"", "\"decoder_start\":\"2\""),
              AllOf(HasSubstr("starts from 0"), Not(HasSubstr("make it again"))))
      << "the tokenizer's model starts there";
  EXPECT_THAT(of("\"4000\"", "\"\""), HasSubstr("'target_bytes'"));
}

TEST_F(PairCorpus, WhatIsWrongWithItsListsIsSaid) {
  const auto changed = [&](auto change) {
    WrittenPairs written = counting_pairs(40);
    change(written);
    return fault(written);
  };
  const auto offset = [&](size_t index, int64_t value) {
    return changed([&](WrittenPairs& it) { it.targets.offsets.at(index) = value; });
  };
  EXPECT_THAT(offset(0, 1), HasSubstr("target_offsets that begin at 1"));
  EXPECT_THAT(offset(3, -5), HasSubstr("to -5 at pair 2"));
  EXPECT_THAT(offset(3, 1 << 20), HasSubstr("at pair 2, of"));
  EXPECT_THAT(offset(40, 1), HasSubstr("at pair 39"));
  EXPECT_THAT(changed([](WrittenPairs& it) { it.targets.tokens.push_back(1); }), HasSubstr("that end at"));
  EXPECT_THAT(changed([](WrittenPairs& it) { it.sources.add({}), it.targets.add({1}); }),
              HasSubstr("source_offsets that leave pair 40 without a token"));
  EXPECT_THAT(
      changed([](WrittenPairs& it) { it.sources.add(std::vector<int32_t>(13, 5)), it.targets.add({1}); }),
      HasSubstr("give pair 40 13 tokens, and the metadata say at most 12"));
  EXPECT_THAT(changed([](WrittenPairs& it) { it.sources.add({1}); }), HasSubstr("41 sources and 40 targets"));
  EXPECT_THAT(changed([](WrittenPairs& it) { it.sources.tokens[7] = 384; }),
              HasSubstr("sources that have the token 384 at position 7"));
  EXPECT_THAT(changed([](WrittenPairs& it) { it.type = "I32", it.targets.tokens[2] = -1; }),
              HasSubstr("targets that have the token -1 at position 2"));
  EXPECT_THAT(changed([](WrittenPairs& it) { it.type = "F32"; }), HasSubstr("are F32"));
  EXPECT_THAT(changed([](WrittenPairs& it) { it.offset_type = "U64"; }), HasSubstr("row of I64"));
  EXPECT_THAT(
      changed([](WrittenPairs& it) { it.more = R"(,"x":{"dtype":"U8","shape":[0],"data_offsets":[0,0]})"; }),
      HasSubstr("nothing else"));
  EXPECT_THAT(fault(WrittenPairs{}), HasSubstr("0 pairs: too few"));
}

TEST_F(PairCorpus, ADamagedFileIsRefusedOrRead) {
  const std::string whole = counting_pairs(40).bytes();
  for (size_t length = 9; length < whole.size(); length += 11)
    EXPECT_NE(fault_of_bytes(whole.substr(0, length)), "") << length;
  std::mt19937 random(1);
  std::vector<int64_t> source(12), target(8);
  for (int i = 0; i < 400; ++i) {
    std::string damaged = whole;
    damaged[random() % damaged.size()] = static_cast<char>(random());
    ScratchFolder::write(scratch_.file("pairs"), damaged);
    std::string error;
    const auto corpus = Corpus::open(scratch_.file("pairs"), 0.1, 9, &error);
    if (!corpus || !corpus->pairs() || corpus->vocabulary().longest_source > 12 ||
        corpus->vocabulary().longest_target > 8)
      continue;
    corpus->training_pair(1, random(), source, target);
    for (const auto* side : {&source, &target})
      for (const int64_t token : *side)
        ASSERT_TRUE(token == kPadding || uint64_t(token) < corpus->vocabulary().size);
  }
}

}  // namespace
}  // namespace spillway::trainer
