// Drawing from a text: by seed and cursor alone, validation apart from training.
#include "trainer/data/corpus.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <set>

#include "tests/trainer/scratch_folder.h"
#include "tests/trainer/small_models.h"
#include "trainer/data/examples.h"
#include "trainer/data/span_corruption.h"

namespace spillway::trainer {
namespace {

constexpr uint32_t kContext = 16, kWindow = kContext + 1;

std::vector<int64_t> drawn(const Corpus& corpus, uint64_t seed, uint64_t cursor, uint32_t rows) {
  std::vector<int64_t> tokens(rows * kWindow);
  Examples(corpus, small_gpt2(1, 8, 1, kContext)).draw(seed, cursor, rows, tokens);
  return tokens;
}

TEST(Examples, ARowDependsOnSeedAndCursorAlone) {
  const ScratchFolder scratch;
  std::string error;
  const auto corpus = Corpus::open(scratch.corpus(), 0.1, kWindow, &error);
  ASSERT_TRUE(corpus) << error;
  const auto whole = drawn(*corpus, 3, 100, 8);
  for (uint32_t i = 0; i < 8; ++i)
    EXPECT_EQ(drawn(*corpus, 3, 100 + i, 1),
              std::vector<int64_t>(whole.begin() + i * kWindow, whole.begin() + (i + 1) * kWindow));
  EXPECT_NE(drawn(*corpus, 4, 100, 8), whole);
}

TEST(Examples, TrainingNeverSeesTheValidationPart) {
  const ScratchFolder scratch;
  // Bytes of the last tenth are marked.
  std::string text(1000, 'a');
  text.replace(900, 100, std::string(100, 'z'));
  ScratchFolder::write(scratch.file("text"), text);
  std::string error;
  const auto corpus = Corpus::open(scratch.file("text"), 0.1, kWindow, &error);
  ASSERT_TRUE(corpus) << error;
  for (const int64_t token : drawn(*corpus, 1, 0, 5000)) ASSERT_EQ(token, 'a');
  const Examples examples(*corpus, small_gpt2(1, 8, 1, kContext));
  std::vector<int64_t> row(kWindow);
  for (uint32_t i = 0; i < 32; ++i) {
    examples.validation_row(i, 32, row);
    ASSERT_THAT(row, testing::Each('z'));
  }
}

// The text that a row of T5's was made of: where the input has a sentinel, the target has the span.
std::vector<int64_t> restored(const std::vector<int64_t>& row, uint32_t context, int64_t least_sentinel) {
  std::vector<int64_t> text;
  const auto is_sentinel = [&](int64_t token) { return token >= least_sentinel; };
  for (uint32_t i = 0; i + 1 < context; ++i) {
    if (!is_sentinel(row[i])) {
      text.push_back(row[i] - kFirstByte);
      continue;
    }
    auto at = std::find(row.begin() + context, row.end(), row[i]);
    while (at + 1 != row.end() && !is_sentinel(at[1]) && at[1] != kEndOfSequence)
      text.push_back(*++at - kFirstByte);
  }
  return text;
}

TEST(Examples, SpansThatAreTakenOutStandInTheTarget) {
  const ScratchFolder scratch;
  std::string error;
  const Architecture model = small_model(Family::kT5, 1, 8, 1, 64);
  const SpanSizes sizes = span_sizes(model.context);
  const auto corpus = Corpus::open(scratch.corpus(), 0.1, sizes.raw_tokens, &error);
  ASSERT_TRUE(corpus) << error;
  const std::string text = ScratchFolder::read(scratch.corpus());
  const Examples examples(*corpus, model);
  const SpanMarks marks = byte_marks(model.vocabulary, sizes.spans);
  ASSERT_EQ(examples.row_tokens(), model.context + sizes.target_tokens);
  std::set<std::vector<int64_t>> places;
  for (uint64_t cursor = 0; cursor < 200; ++cursor) {
    std::vector<int64_t> row(examples.row_tokens());
    examples.draw(5, cursor, 1, row);
    EXPECT_EQ(row[model.context - 1], kEndOfSequence);
    EXPECT_EQ(row.back(), kEndOfSequence);
    EXPECT_NE(row[0], marks.sentinels[0]) << "an input begins with text";
    std::vector<int64_t> where;
    for (uint32_t i = 0; i < model.context; ++i)
      if (row[i] > kFirstByte + 255) where.push_back(i);
    EXPECT_EQ(where.size(), sizes.spans);
    places.insert(where);
    const auto bytes = restored(row, model.context, marks.sentinels.back());
    EXPECT_EQ(bytes.size(), sizes.raw_tokens);
    EXPECT_NE(text.find(std::string(bytes.begin(), bytes.end())), text.npos) << cursor;
  }
  EXPECT_GT(places.size(), 150u) << "spans lie elsewhere each time";
}

TEST(Examples, AVocabularyThatIsTooSmallIsNamed) {
  Architecture model = small_model(Family::kT5, 1, 8, 1, 64);
  EXPECT_EQ(Examples::fault_of(model, {}), "");
  model.vocabulary = 256;
  EXPECT_THAT(Examples::fault_of(model, {}), testing::HasSubstr("at least 263"));
  model = small_gpt2(1, 8, 1, 8);
  model.vocabulary = 255;
  EXPECT_THAT(Examples::fault_of(model, {}), testing::HasSubstr("at least 256"));
}

TEST(Corpus, EntropyIsThatOfTheByteFrequencies) {
  const ScratchFolder scratch;
  ScratchFolder::write(scratch.file("text"), std::string(500, 'a') + std::string(500, 'b'));
  std::string error;
  const auto corpus = Corpus::open(scratch.file("text"), 0.5, kWindow, &error);
  ASSERT_TRUE(corpus) << error;
  EXPECT_NEAR(corpus->unigram_entropy(), std::log(2.0), 1e-12);
}

TEST(Corpus, SaysWhatIsWrongWithItsFile) {
  const ScratchFolder scratch;
  std::string error;
  EXPECT_FALSE(Corpus::open(scratch.file("none"), 0.1, kWindow, &error));
  EXPECT_THAT(error, testing::HasSubstr("tools/setup"));
  EXPECT_FALSE(Corpus::open(scratch.file(""), 0.1, kWindow, &error));
  ScratchFolder::write(scratch.file("short"), "short");
  EXPECT_FALSE(Corpus::open(scratch.file("short"), 0.1, kWindow, &error));
  EXPECT_THAT(error, testing::HasSubstr("5 bytes: too few"));
}

}  // namespace
}  // namespace spillway::trainer
