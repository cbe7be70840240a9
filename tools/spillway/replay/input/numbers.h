// Numbers from 0 on, in the order in which keys are first met.
//
// Thread-safety: none. Errors: std::bad_alloc.
#pragma once
#include <cstdint>
#include <map>
#include <vector>

namespace spillway::tools {

template <typename Key>
class Numbers {
 public:
  uint32_t of(const Key& key) {
    return numbers_.try_emplace(key, static_cast<uint32_t>(numbers_.size())).first->second;
  }
  uint32_t count() const { return static_cast<uint32_t>(numbers_.size()); }
  std::vector<Key> keys() const {
    std::vector<Key> keys(numbers_.size());
    for (const auto& [key, number] : numbers_) keys[number] = key;
    return keys;
  }

 private:
  std::map<Key, uint32_t> numbers_;
};

}  // namespace spillway::tools
