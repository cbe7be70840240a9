#include "trainer/serve/text/text_stream.h"

#include <gtest/gtest.h>

#include "trainer/serve/text/vocabulary_text.h"

namespace spillway::trainer::serve {
namespace {

// A byte at a time: what is shown after each, between bars.
std::string shown(TextStream stream, const std::string& bytes) {
  std::string all;
  for (const char byte : bytes) all += stream.add({&byte, 1}) + "|";
  return all + stream.finish();
}

TEST(TextStream, ShowsWholeCharactersAlone) {
  EXPECT_EQ(shown(TextStream(), "a\xC3\xA9z"), "a||\xC3\xA9|z|");
  EXPECT_EQ(shown(TextStream(), "\xF0\x9F\x98\x80"), "|||\xF0\x9F\x98\x80|");
}

TEST(TextStream, BytesOfNoCharacterAreReplaced) {
  EXPECT_EQ(shown(TextStream(), "\xFF"), "|\xEF\xBF\xBD") << "it could begin one, by its first bits";
  EXPECT_EQ(shown(TextStream(),
                  "\x80"
                  "a"),
            "\xEF\xBF\xBD|a|");
  EXPECT_EQ(shown(TextStream(), "\xC3"), "|\xEF\xBF\xBD");
}

TEST(TextStream, HoldsBackWhatMayBecomeAStop) {
  EXPECT_EQ(shown(TextStream({"end"}), "an enend, more"), "a|n| |||en|||||||||");
  EXPECT_EQ(shown(TextStream({"end"}), "een"), "|e||en") << "it did not come";
  EXPECT_EQ(shown(TextStream({"\n\n", "###"}), "a\nb##c"), "a||\nb|||##c|");
}

TEST(TextStream, TheFirstStopEnds) {
  TextStream stream({"zz", "b"});
  EXPECT_EQ(stream.add("abzz"), "a");
  EXPECT_TRUE(stream.stopped());
  EXPECT_EQ(stream.add("more"), "");
  EXPECT_EQ(stream.finish(), "");
}

TEST(VocabularyText, BytesAndThoseOfByT5) {
  Architecture bytes = Architecture::usual(Family::kGpt2, 1, 8, 1, 8);
  EXPECT_EQ(text_form_of(bytes), TextForm::kBytes);
  bytes.vocabulary = 50257;
  EXPECT_EQ(text_form_of(bytes), TextForm::kTokenizer);
  EXPECT_EQ(text_form_of(Architecture::usual(Family::kT5, 1, 8, 1, 8)), TextForm::kByT5);
  EXPECT_EQ(tokens_of(TextForm::kBytes, "a\xFF"), (std::vector<int64_t>{97, 255}));
  EXPECT_EQ(tokens_of(TextForm::kByT5, "a"), (std::vector<int64_t>{100, 1}));
  EXPECT_EQ(bytes_of(TextForm::kBytes, 97), "a");
  EXPECT_EQ(bytes_of(TextForm::kByT5, 100), "a");
  for (const int64_t none : {0, 1, 2, 259, 383}) EXPECT_EQ(bytes_of(TextForm::kByT5, none), "");
}

}  // namespace
}  // namespace spillway::trainer::serve
