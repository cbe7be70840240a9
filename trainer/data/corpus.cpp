#include "trainer/data/corpus.h"

#include <algorithm>
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
  const bool is_read =
      TokenFile::is_one(path) ? corpus.map_tokens(path, error) : corpus.read_text(path, error);
  if (!is_read) return std::nullopt;
  std::string fault = corpus.split(validation, window);
  if (fault.empty()) fault = corpus.count();
  if (fault.empty()) return corpus;
  *error = "corpus '" + path + "' has " + fault;
  return std::nullopt;
}

std::optional<Vocabulary> Corpus::vocabulary_of(const std::string& path, std::string* error) {
  if (!TokenFile::is_one(path)) return Vocabulary{};
  const auto file = TokenFile::open(path, error);
  return file ? std::optional(file->vocabulary()) : std::nullopt;
}

bool Corpus::read_text(const std::string& path, std::string* error) {
  std::error_code code;
  std::ifstream file(path, std::ios::binary);
  text_.resize(std::filesystem::file_size(path, code));
  if (code || !file.read(reinterpret_cast<char*>(text_.data()), std::streamsize(text_.size()))) {
    *error = "corpus '" + path + "' could not be read to its end";
    return false;
  }
  tokens_ = TokenView(std::as_bytes(std::span(text_)), 1);
  text_bytes_ = text_.size();
  return true;
}

bool Corpus::map_tokens(const std::string& path, std::string* error) {
  file_ = TokenFile::open(path, error);
  if (!file_) return false;
  tokens_ = file_->tokens();
  vocabulary_ = file_->vocabulary();
  text_bytes_ = file_->text_bytes();
  return true;
}

std::string Corpus::split(double validation, uint32_t window) {
  training_size_ = static_cast<uint64_t>(double(size()) * (1 - validation));
  if (training_size_ >= window && size() - training_size_ >= window) return "";
  return std::to_string(size()) + (vocabulary_.of_bytes ? " bytes" : " tokens") +
         ": too few for a training and a validation part of at least " + std::to_string(window) + " each";
}

std::string Corpus::count() {
  std::vector<uint64_t> counts(vocabulary_.size);
  std::vector<int64_t> block(1 << 16);
  for (uint64_t first = 0; first < size(); first += block.size()) {
    const auto some = std::span(block).first(std::min<uint64_t>(block.size(), size() - first));
    tokens_.copy(first, some);
    for (size_t i = 0; i < some.size(); ++i) {
      if (uint64_t(some[i]) >= counts.size())
        return "the token " + std::to_string(some[i]) + " at position " + std::to_string(first + i) +
               ", and a vocabulary of " + std::to_string(counts.size()) +
               ": make it again with python -m spillway.tokenize";
      ++counts[size_t(some[i])];
    }
  }
  for (const uint64_t count : counts) {
    const double share = double(count) / double(size());
    if (count) unigram_entropy_ -= share * std::log(share);
  }
  return "";
}

void Corpus::training_window(uint64_t number, std::span<int64_t> window) const {
  tokens_.copy(number % (training_size_ - window.size() + 1), window);
}

void Corpus::validation_window(uint32_t index, uint32_t windows, std::span<int64_t> window) const {
  const uint64_t starts = size() - training_size_ - window.size() + 1;
  tokens_.copy(training_size_ + starts * index / windows, window);
}

}  // namespace spillway::trainer
