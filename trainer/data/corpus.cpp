#include "trainer/data/corpus.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <filesystem>
#include <fstream>

namespace spillway::trainer {
namespace {

// SplitMix64: a good bijection of (seed, position), so that any draw can be made without those before it.
uint64_t mix(uint64_t seed, uint64_t position) {
  uint64_t z = seed * 0x9e3779b97f4a7c15ull + position * 0xd1b54a32d192ed03ull + 0x9e3779b97f4a7c15ull;
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ull;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebull;
  return z ^ (z >> 31);
}

}  // namespace

std::optional<Corpus> Corpus::open(const std::string& path, double validation, uint32_t context,
                                   std::string* error) {
  std::error_code code;
  if (!std::filesystem::is_regular_file(path, code)) {
    *error =
        "corpus '" + path + "' is no readable file: set data.corpus, or run tools/setup for the default text";
    return std::nullopt;
  }
  Corpus corpus;
  std::ifstream file(path, std::ios::binary);
  corpus.text_.resize(std::filesystem::file_size(path, code));
  if (code ||
      !file.read(reinterpret_cast<char*>(corpus.text_.data()), std::streamsize(corpus.text_.size()))) {
    *error = "corpus '" + path + "' could not be read to its end";
    return std::nullopt;
  }
  corpus.training_size_ = static_cast<uint64_t>(double(corpus.text_.size()) * (1 - validation));
  const uint64_t window = uint64_t{context} + 1;
  if (corpus.training_size_ < window || corpus.text_.size() - corpus.training_size_ < window) {
    *error = "corpus '" + path + "' has " + std::to_string(corpus.text_.size()) +
             " bytes: too few for a training and a validation part of at least " + std::to_string(window) +
             " each";
    return std::nullopt;
  }
  return corpus;
}

void Corpus::window_at(uint64_t begin, std::span<int64_t> tokens) const {
  std::copy_n(text_.begin() + static_cast<std::ptrdiff_t>(begin), tokens.size(), tokens.begin());
}

void Corpus::draw(uint64_t seed, uint64_t cursor, uint32_t sequences, std::span<int64_t> tokens) const {
  const uint64_t window = tokens.size() / sequences, starts = training_size_ - window + 1;
  for (uint32_t i = 0; i < sequences; ++i)
    window_at(mix(seed, cursor + i) % starts, tokens.subspan(i * window, window));
}

void Corpus::validation_window(uint32_t index, uint32_t windows, std::span<int64_t> tokens) const {
  const uint64_t starts = text_.size() - training_size_ - tokens.size() + 1;
  window_at(training_size_ + starts * index / windows, tokens);
}

double Corpus::unigram_entropy() const {
  std::array<uint64_t, kVocabulary> counts{};
  for (const uint8_t byte : text_) ++counts[byte];
  double entropy = 0;
  for (const uint64_t count : counts) {
    const double share = double(count) / double(text_.size());
    if (count) entropy -= share * std::log(share);
  }
  return entropy;
}

}  // namespace spillway::trainer
