#include "trainer/ranks/agreement/store_round.h"

#include <stdexcept>

namespace spillway::trainer {
namespace {

std::string decision_key(uint64_t round) {
  return "decision/" + std::to_string(round);
}

std::string word_key(uint64_t round, uint32_t rank) {
  return "word/" + std::to_string(round) + "/" + std::to_string(rank);
}

}  // namespace

std::vector<std::string> StoreRounds::words_of(uint64_t round) {
  std::vector<std::string> keys;
  keys.reserve(size_);
  for (uint32_t rank = 0; rank < size_; ++rank) keys.push_back(word_key(round, rank));
  try {
    store_.wait(keys, timeout_);
  } catch (const std::exception&) {
    std::string silent;
    for (uint32_t rank = 0; rank < size_; ++rank)
      if (!store_.check({keys[rank]})) silent += (silent.empty() ? "" : ", ") + std::to_string(rank);
    if (silent.empty()) throw;
    throw std::runtime_error("of " + std::to_string(size_) + " ranks these did not say within " +
                             std::to_string(timeout_.count() / 1000) +
                             " seconds (run.ranks_timeout) what they do about a failure: " + silent);
  }
  std::vector<std::string> words;
  words.reserve(size_);
  for (const std::vector<uint8_t>& bytes : store_.multiGet(keys))
    words.emplace_back(bytes.begin(), bytes.end());
  return words;
}

// Of a round that all ranks have left: they speak in the next one.
void StoreRounds::forget(uint64_t round) {
  store_.deleteKey(decision_key(round));
  for (uint32_t rank = 0; rank < size_; ++rank) store_.deleteKey(word_key(round, rank));
}

std::string StoreRounds::decide(const std::string& mine, const Decide& decide) {
  const uint64_t round = rounds_++;
  store_.set(word_key(round, rank_), mine);
  if (rank_ == 0) {
    const std::string made = decide(words_of(round));
    if (round > 0) forget(round - 1);
    store_.set(decision_key(round), made);
    return made;
  }
  const std::vector<uint8_t> made = store_.get(decision_key(round));
  return {made.begin(), made.end()};
}

}  // namespace spillway::trainer
