// One round of words in the store where the ranks meet: each rank says one, the first one makes a decision of
// them all, and all get that. No sum is needed for it, and no memory of a device.
//
// Thread-safety: one thread. Ownership: borrows the store. Errors: SilentRank where ranks did not
// speak in time; c10d's exceptions.
#pragma once
#include <functional>

#include "trainer/ranks/network/store.h"

namespace spillway::trainer {

using Decide = std::function<std::string(const std::vector<std::string>& of_ranks)>;

class StoreRounds {
 public:
  StoreRounds(c10d::Store& store, uint32_t rank, uint32_t size, std::chrono::milliseconds timeout)
      : store_(store), rank_(rank), size_(size), timeout_(timeout) {}

  // All ranks call it as often.
  std::string decide(const std::string& mine, const Decide& decide);

 private:
  std::vector<std::string> words_of(uint64_t round);
  void forget(uint64_t round);

  c10d::Store& store_;
  const uint32_t rank_, size_;
  const std::chrono::milliseconds timeout_;
  uint64_t rounds_ = 0;
};

}  // namespace spillway::trainer
