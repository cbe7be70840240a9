// A list that is short nearly always: its first entries lie in itself, so that it needs no memory of its own.
// A dry run makes several for each operator.
//
// Thread-safety: a value. Errors: none.
#pragma once
#include <algorithm>
#include <array>
#include <cstddef>
#include <initializer_list>
#include <vector>

namespace spillway::trainer {

template <typename Entry, size_t kInPlace = 4>
class Few {
 public:
  Few() = default;
  Few(std::initializer_list<Entry> entries) : Few(entries.begin(), entries.end()) {}
  explicit Few(const std::vector<Entry>& entries) : Few(entries.data(), entries.data() + entries.size()) {}

  void push_back(Entry entry) {
    if (size_ == kInPlace) many_.assign(few_.begin(), few_.end());
    if (size_ >= kInPlace)
      many_.push_back(entry);
    else
      few_[size_] = entry;
    ++size_;
  }

  size_t size() const { return size_; }
  const Entry* begin() const { return size_ > kInPlace ? many_.data() : few_.data(); }
  const Entry* end() const { return begin() + size_; }
  Entry operator[](size_t at) const { return begin()[at]; }

 private:
  Few(const Entry* begin, const Entry* end) {
    for (const Entry* entry = begin; entry != end; ++entry) push_back(*entry);
  }

  size_t size_ = 0;
  std::array<Entry, kInPlace> few_{};
  std::vector<Entry> many_{};  // all of them, where there are more
};

}  // namespace spillway::trainer
