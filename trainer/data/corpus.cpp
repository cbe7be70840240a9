#include "trainer/data/corpus.h"

#include <array>
#include <cmath>
#include <filesystem>
#include <fstream>

namespace spillway::trainer {

std::optional<Corpus> Corpus::open(const std::string& path, double validation, uint32_t window,
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
  if (corpus.training_size_ < window || corpus.text_.size() - corpus.training_size_ < window) {
    *error = "corpus '" + path + "' has " + std::to_string(corpus.text_.size()) +
             " bytes: too few for a training and a validation part of at least " + std::to_string(window) +
             " each";
    return std::nullopt;
  }
  return corpus;
}

std::span<const uint8_t> Corpus::training_window(uint64_t number, uint32_t bytes) const {
  const uint64_t windows = training_size_ - bytes + 1;
  return std::span(text_).subspan(number % windows, bytes);
}

std::span<const uint8_t> Corpus::validation_window(uint32_t index, uint32_t windows, uint32_t bytes) const {
  const uint64_t starts = text_.size() - training_size_ - bytes + 1;
  return std::span(text_).subspan(training_size_ + starts * index / windows, bytes);
}

double Corpus::unigram_entropy() const {
  std::array<uint64_t, kBytes> counts{};
  for (const uint8_t byte : text_) ++counts[byte];
  double entropy = 0;
  for (const uint64_t count : counts) {
    const double share = double(count) / double(text_.size());
    if (count) entropy -= share * std::log(share);
  }
  return entropy;
}

}  // namespace spillway::trainer
