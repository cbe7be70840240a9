// Drawing from a text: by seed and cursor alone, validation apart from training.
#include "trainer/data/corpus.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "tests/trainer/scratch_folder.h"

namespace spillway::trainer {
namespace {

constexpr uint32_t kContext = 16, kWindow = kContext + 1;

std::vector<int64_t> drawn(const Corpus& corpus, uint64_t seed, uint64_t cursor, uint32_t sequences) {
  std::vector<int64_t> tokens(sequences * kWindow);
  corpus.draw(seed, cursor, sequences, tokens);
  return tokens;
}

TEST(Corpus, AWindowDependsOnSeedAndCursorAlone) {
  const ScratchFolder scratch;
  std::string error;
  const auto corpus = Corpus::open(scratch.corpus(), 0.1, kContext, &error);
  ASSERT_TRUE(corpus) << error;
  const auto whole = drawn(*corpus, 3, 100, 8);
  for (uint32_t i = 0; i < 8; ++i)
    EXPECT_EQ(drawn(*corpus, 3, 100 + i, 1),
              std::vector<int64_t>(whole.begin() + i * kWindow, whole.begin() + (i + 1) * kWindow));
  EXPECT_NE(drawn(*corpus, 4, 100, 8), whole);
}

TEST(Corpus, TrainingNeverSeesTheValidationPart) {
  const ScratchFolder scratch;
  // Bytes of the last tenth are marked.
  std::string text(1000, 'a');
  text.replace(900, 100, std::string(100, 'z'));
  ScratchFolder::write(scratch.file("text"), text);
  std::string error;
  const auto corpus = Corpus::open(scratch.file("text"), 0.1, kContext, &error);
  ASSERT_TRUE(corpus) << error;
  for (const int64_t token : drawn(*corpus, 1, 0, 5000)) ASSERT_EQ(token, 'a');
  std::vector<int64_t> window(kWindow);
  for (uint32_t i = 0; i < 32; ++i) {
    corpus->validation_window(i, 32, window);
    ASSERT_THAT(window, testing::Each('z'));
  }
}

TEST(Corpus, EntropyIsThatOfTheByteFrequencies) {
  const ScratchFolder scratch;
  ScratchFolder::write(scratch.file("text"), std::string(500, 'a') + std::string(500, 'b'));
  std::string error;
  const auto corpus = Corpus::open(scratch.file("text"), 0.5, kContext, &error);
  ASSERT_TRUE(corpus) << error;
  EXPECT_NEAR(corpus->unigram_entropy(), std::log(2.0), 1e-12);
}

TEST(Corpus, SaysWhatIsWrongWithItsFile) {
  const ScratchFolder scratch;
  std::string error;
  EXPECT_FALSE(Corpus::open(scratch.file("none"), 0.1, kContext, &error));
  EXPECT_THAT(error, testing::HasSubstr("tools/setup"));
  EXPECT_FALSE(Corpus::open(scratch.file(""), 0.1, kContext, &error));
  ScratchFolder::write(scratch.file("short"), "short");
  EXPECT_FALSE(Corpus::open(scratch.file("short"), 0.1, kContext, &error));
  EXPECT_THAT(error, testing::HasSubstr("5 bytes: too few"));
}

}  // namespace
}  // namespace spillway::trainer
