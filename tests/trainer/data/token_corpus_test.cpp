// Training from a file of tokens: its windows and its vocabulary, and that no file leads out of bounds.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <random>

#include "tests/trainer/data/token_files.h"
#include "tests/trainer/scratch_folder.h"
#include "tests/trainer/small_models.h"
#include "trainer/config/config.h"
#include "trainer/data/examples.h"

namespace spillway::trainer {
namespace {

using testing::HasSubstr;

class TokenCorpus : public testing::Test {
 protected:
  static std::vector<int32_t> counting(size_t count) {
    std::vector<int32_t> tokens(count);
    for (size_t i = 0; i < count; ++i) tokens[i] = int32_t(i % 250);
    return tokens;
  }
  std::string write(const std::string& bytes) {
    ScratchFolder::write(scratch_.file("tokens"), bytes);
    return scratch_.file("tokens");
  }
  static Corpus opened(const std::string& path, uint32_t window) {
    std::string error;
    auto corpus = Corpus::open(path, 0.1, window, &error);
    EXPECT_TRUE(corpus) << error;
    return std::move(corpus).value_or(Corpus());
  }
  // "" where it opens.
  std::string fault(const std::string& bytes) {
    std::string error;
    return Corpus::open(write(bytes), 0.1, 9, &error) ? "" : error;
  }
  std::string config_fault(const std::string& model) {
    std::string error;
    const auto config =
        parse_config("[data]\ncorpus = \"" + scratch_.file("tokens") + "\"\n" + model, {}, &error);
    config_ = config.value_or(Config{});
    return error;
  }
  const ScratchFolder scratch_;
  Config config_;
};

TEST_F(TokenCorpus, WindowsAreWhatTheFileHas) {
  for (const std::string type : {"U8", "U16", "I32"})
    for (const std::string padding : {"", " "}) {  // the numbers then begin at an odd byte
      WrittenTokens written{.type = type, .tokens = counting(1000)};
      written.metadata += padding;
      const Corpus corpus = opened(write(written.bytes()), 9);
      EXPECT_EQ(corpus.size(), 1000u);
      EXPECT_EQ(corpus.text_bytes(), 4000u);
      EXPECT_EQ(corpus.vocabulary().size, 300u);
      EXPECT_NEAR(corpus.unigram_entropy(), std::log(250), 1e-9);
      std::vector<int64_t> window(9);
      for (const uint64_t first : {0, 1, 500, 891}) {
        corpus.training_window(first, window);
        for (size_t i = 0; i < window.size(); ++i) EXPECT_EQ(window[i], int64_t((first + i) % 250)) << type;
      }
      corpus.validation_window(0, 1, window);
      EXPECT_EQ(window[0], 900 % 250);
    }
}

TEST_F(TokenCorpus, BytesAsTokensGiveTheRowsOfTheText) {
  const std::string text = ScratchFolder::read(scratch_.corpus());
  for (const Family family : {Family::kGpt2, Family::kT5}) {
    Architecture model = small_model(family, 1, 8, 1, 64);
    WrittenTokens written{.tokens = tokens_of(text, family == Family::kT5 ? 3 : 0)};
    written.metadata = R"("format":"spillway-tokens 1","vocabulary":")" + std::to_string(model.vocabulary) +
                       R"(","text_bytes":"1","eos":"1","sentinels":"[255,254,253,252]")";
    if (family == Family::kT5)
      written.metadata.replace(written.metadata.find("[255"), 17, "[383,382,381,380]");
    const uint32_t window = Examples::window_tokens(model);
    const Corpus of_text = opened(scratch_.corpus(), window),
                 of_tokens = opened(write(written.bytes()), window);
    ASSERT_EQ(Examples::fault_of(model, of_tokens.vocabulary()), "");
    const Examples a(of_text, model), b(of_tokens, model);
    std::vector<int64_t> rows(size_t{20} * a.row_tokens()), same(rows.size());
    a.draw(3, 7, 20, rows);
    b.draw(3, 7, 20, same);
    EXPECT_EQ(rows, same);
    a.validation_row(1, 3, std::span(rows).first(a.row_tokens()));
    b.validation_row(1, 3, std::span(same).first(a.row_tokens()));
    EXPECT_EQ(rows, same);
  }
}

TEST_F(TokenCorpus, AT5TakesTheTokenizersOwnMarks) {
  const Architecture model = small_model(Family::kT5, 1, 8, 1, 64);
  WrittenTokens written{.tokens = counting(1000)};
  written.metadata += R"(,"eos":"299","sentinels":"[290,295,260,261]")";
  const Corpus corpus = opened(write(written.bytes()), Examples::window_tokens(model));
  ASSERT_EQ(Examples::fault_of(model, corpus.vocabulary()), "");
  const Examples examples(corpus, model);
  std::vector<int64_t> row(examples.row_tokens()), marks;
  examples.draw(1, 0, 1, row);
  for (const int64_t token : row)
    if (token >= 250) marks.push_back(token);
  EXPECT_THAT(marks, testing::ElementsAre(290, 295, 260, 261, 299, 290, 295, 260, 261, 299));
}

TEST_F(TokenCorpus, ATokenOutsideTheVocabularyIsNamedWithItsPosition) {
  for (const int32_t wrong : {300, -1, 65535 + 1}) {
    WrittenTokens written{.type = "I32", .tokens = counting(100000)};
    written.tokens[70001] = wrong;
    EXPECT_THAT(fault(written.bytes()), HasSubstr("token " + std::to_string(wrong) + " at position 70001"));
  }
}

TEST_F(TokenCorpus, WhatIsWrongWithAFileIsSaid) {
  const auto with = [](const std::string& from, const std::string& to) {
    WrittenTokens written{.tokens = counting(100)};
    const size_t at = written.metadata.find(from);
    written.metadata.replace(at, from.size(), to);
    return written.bytes();
  };
  EXPECT_EQ(fault(WrittenTokens{.tokens = counting(100)}.bytes()), "");
  EXPECT_THAT(fault(with("tokens 1", "tokens 2")), HasSubstr("not one of tokens"));
  EXPECT_THAT(fault(with("4000", "4000 ")), HasSubstr("'text_bytes'"));
  for (const char* size : {"0", "-1", "99999999999", "x"})
    EXPECT_THAT(fault(with("300", size)), HasSubstr("'vocabulary' must be"));
  EXPECT_THAT(fault(with("4000\"", "4000\",\"eos\":\"300\"")), HasSubstr("'eos'"));
  for (const char* list : {"[300]", "[-1]", "[0.5]", "{}", "[", "[[1]]"})
    EXPECT_THAT(fault(with("4000\"", "4000\",\"sentinels\":\"" + std::string(list) + "\"")),
                HasSubstr("'sentinels'"));
  EXPECT_THAT(fault(WrittenTokens{.type = "F32", .tokens = counting(100)}.bytes()), HasSubstr("are F32"));
  EXPECT_THAT(fault(WrittenTokens{.tokens = counting(100), .shape = "50,2"}.bytes()), HasSubstr("one row"));
  EXPECT_THAT(fault(WrittenTokens{.tokens = counting(12)}.bytes()), HasSubstr("12 tokens: too few"));
  EXPECT_THAT(fault(WrittenTokens{}.bytes()), HasSubstr("0 tokens: too few"));
}

TEST_F(TokenCorpus, ADamagedFileIsRefusedOrRead) {
  const std::string whole = WrittenTokens{.tokens = counting(200)}.bytes();
  for (size_t length = 9; length < whole.size(); length += 3)
    EXPECT_NE(fault(whole.substr(0, length)), "") << length;
  std::mt19937 random(1);
  std::vector<int64_t> window(9);
  for (int i = 0; i < 600; ++i) {
    std::string damaged = whole;
    damaged[random() % damaged.size()] = static_cast<char>(random());
    std::string error;
    const auto corpus = Corpus::open(write(damaged), 0.1, 9, &error);
    if (!corpus) continue;
    corpus->training_window(random(), window);
    for (const int64_t token : window) ASSERT_LT(uint64_t(token), corpus->vocabulary().size);
  }
}

TEST_F(TokenCorpus, TheVocabularyOfANewModelIsTheFiles) {
  write(WrittenTokens{.tokens = counting(1000)}.bytes());
  EXPECT_EQ(config_fault(""), "");
  EXPECT_EQ(config_.model.vocabulary, 300u);
  EXPECT_EQ(config_fault("[model]\nvocabulary = 320\n"), "");
  EXPECT_EQ(config_.model.vocabulary, 320u);
  EXPECT_THAT(config_fault("[model]\nvocabulary = 299\n"),
              HasSubstr("at least 300: the vocabulary of the tokens"));
  EXPECT_THAT(config_fault("[model]\nfamily = \"t5\"\n"), HasSubstr("has 0 sentinels"));
  WrittenTokens written{.tokens = counting(1000)};
  written.metadata += R"(,"sentinels":"[299,298,297,296]")";
  write(written.bytes());
  EXPECT_THAT(config_fault("[model]\nfamily = \"t5\"\ncontext = 64\n"), HasSubstr("end of text"));
  write(written.bytes().substr(0, 100));
  EXPECT_THAT(config_fault(""), HasSubstr("cut short"));
}

}  // namespace
}  // namespace spillway::trainer
