// Columns of whole numbers as compact text: each number in as many 7-bit groups as it needs (LEB128), the
// bytes in base64. A million events take some megabytes so, and a browser reads them into typed arrays in one
// pass.
//
// Thread-safety: plain values. Units: none. Errors: none; a page counts in doubles, so a number above
// `kLargest` stands as that.
#pragma once
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace spillway::tools {

class Column {
 public:
  static constexpr uint64_t kLargest = (uint64_t{1} << 53) - 1;

  void add(uint64_t number);
  // The difference to the number before; small ones of either sign are short.
  void add_step_to(uint64_t number);
  std::string base64() const;

 private:
  void put(uint64_t number);
  std::string bytes_;
  uint64_t last_ = 0;
};

std::string base64_of(std::string_view bytes);
// What `Column::base64` made of numbers: the page's own reading, for tests.
std::vector<uint64_t> numbers_of(std::string_view base64);

}  // namespace spillway::tools
