#include "trainer/app/run/corpus_sizes.h"

#include <cmath>
#include <numbers>

namespace spillway::trainer {
namespace {

std::string pair_sizes(const PairFile& pairs, const Architecture& model) {
  const auto side = [](const TokenLists& lists, uint32_t longest) {
    return std::to_string(lists.tokens().size()) + " tokens (at most " + std::to_string(longest) + ")";
  };
  const uint64_t tokens = pairs.sources().tokens().size() + pairs.targets().tokens().size();
  const double padding = 1 - double(tokens) / (double(pairs.size()) * model.row_tokens());
  const Vocabulary& vocabulary = pairs.vocabulary();
  return std::to_string(pairs.size()) + " pairs, sources of " +
         side(pairs.sources(), vocabulary.longest_source) + ", targets of " +
         side(pairs.targets(), vocabulary.longest_target) + ", a vocabulary of " +
         std::to_string(vocabulary.size) + ", " + std::to_string(std::lround(100 * padding)) +
         "% of the rows padding";
}

}  // namespace

std::string corpus_sizes(const Corpus& corpus, const Architecture& model) {
  if (corpus.pairs()) return pair_sizes(*corpus.pairs(), model);
  std::string bytes = std::to_string(corpus.text_bytes()) + " bytes of text";
  if (corpus.vocabulary().of_bytes) return bytes;
  return std::to_string(corpus.size()) + " tokens of a vocabulary of " +
         std::to_string(corpus.vocabulary().size) + ", made of " + bytes;
}

std::optional<double> bits_per_byte(double loss, const Corpus& corpus, const Architecture& model) {
  if (!loss_is_of_text(model) || corpus.text_bytes() == 0) return std::nullopt;
  return loss / std::numbers::ln2 * double(corpus.size()) / double(corpus.text_bytes());
}

}  // namespace spillway::trainer
