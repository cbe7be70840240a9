#include "trainer/ranks/agreement/store_round.h"

namespace spillway::trainer {
namespace {

std::string decision_key(uint64_t round) {
  return "decision/" + std::to_string(round);
}

std::vector<std::string> keys_of_words(uint64_t round, uint32_t size) {
  return keys_of_ranks("word/" + std::to_string(round), size);
}

}  // namespace

std::vector<std::string> StoreRounds::words_of(uint64_t round) {
  const std::vector<std::string> keys = keys_of_words(round, size_);
  wait_for_all(store_, keys, timeout_, "say what they do about a failure");
  std::vector<std::string> words;
  words.reserve(size_);
  for (const std::vector<uint8_t>& bytes : store_.multiGet(keys)) words.push_back(text_in_store(bytes));
  return words;
}

// Of a round that all ranks have left: they speak in the next one.
void StoreRounds::forget(uint64_t round) {
  store_.deleteKey(decision_key(round));
  for (const std::string& key : keys_of_words(round, size_)) store_.deleteKey(key);
}

std::string StoreRounds::decide(const std::string& mine, const Decide& decide) {
  const uint64_t round = rounds_++;
  store_.set(keys_of_words(round, size_)[rank_], mine);
  if (rank_ == 0) {
    const std::string made = decide(words_of(round));
    if (round > 0) forget(round - 1);
    store_.set(decision_key(round), made);
    return made;
  }
  return text_in_store(store_.get(decision_key(round)));
}

}  // namespace spillway::trainer
