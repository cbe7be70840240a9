#include "trainer/data/corpus.h"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>

#include "trainer/data/mix.h"

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
  const bool is_read = !TokenFile::is_one(path) ? corpus.read_text(path, error)
                       : PairFile::is_one(path) ? corpus.map_pairs(path, error)
                                                : corpus.map_tokens(path, error);
  if (!is_read) return std::nullopt;
  std::string fault = corpus.pairs_ ? corpus.pairs_->check() : "";
  if (fault.empty()) fault = corpus.split(validation, window);
  if (fault.empty()) fault = corpus.count();
  if (fault.empty()) return corpus;
  *error = "corpus '" + path + "' has " + fault;
  return std::nullopt;
}

std::optional<Vocabulary> Corpus::vocabulary_of(const std::string& path, std::string* error) {
  if (!TokenFile::is_one(path)) return Vocabulary{};
  if (PairFile::is_one(path)) {
    const auto pairs = PairFile::open(path, error);
    return pairs ? std::optional(pairs->vocabulary()) : std::nullopt;
  }
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

bool Corpus::map_pairs(const std::string& path, std::string* error) {
  pairs_ = PairFile::open(path, error);
  if (!pairs_) return false;
  tokens_ = pairs_->targets().tokens();
  vocabulary_ = pairs_->vocabulary();
  text_bytes_ = pairs_->target_bytes();
  return true;
}

std::string Corpus::split(double validation, uint32_t window) {
  const uint64_t all = pairs_ ? pairs_->size() : size(), least = pairs_ ? 1 : window;
  training_size_ = static_cast<uint64_t>(double(all) * (1 - validation));
  if (training_size_ >= least && all - training_size_ >= least) return "";
  return std::to_string(all) +
         (pairs_                 ? " pairs"
          : vocabulary_.of_bytes ? " bytes"
                                 : " tokens") +
         ": too few for a training and a validation part of at least " + std::to_string(least) + " each";
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

void Corpus::copy_pair(uint64_t pair, std::span<int64_t> source, std::span<int64_t> target) const {
  pairs_->sources().copy(pair, source);
  pairs_->targets().copy(pair, target);
}

void Corpus::training_pair(uint64_t seed, uint64_t number, std::span<int64_t> source,
                           std::span<int64_t> target) const {
  const uint64_t pass = number / training_size_, place = number % training_size_;
  copy_pair(shuffled(place, training_size_, mix(seed, pass)), source, target);
}

void Corpus::validation_pair(uint32_t index, uint32_t count, std::span<int64_t> source,
                             std::span<int64_t> target) const {
  copy_pair(training_size_ + (pairs_->size() - training_size_) * index / count, source, target);
}

}  // namespace spillway::trainer
