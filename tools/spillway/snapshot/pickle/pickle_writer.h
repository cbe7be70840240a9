// Writes Python's pickles of plain data, protocol 4: https://github.com/python/cpython, Lib/pickletools.py.
//
// Values are written in order: a container is opened, filled and closed; of a dictionary a key and its value
// follow by turns. A value that occurs often is written once, kept, and named afterwards.
//
// Thread-safety: one thread. Ownership: the text is the writer's. Errors: none; text that is no UTF-8 has its
// wrong bytes replaced.
#pragma once
#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>

namespace spillway::tools {

class PickleWriter {
 public:
  using Kept = uint32_t;

  PickleWriter() : bytes_("\x80\x04") {}

  void open_list() { bytes_ += "]("; }
  void close_list() { bytes_ += 'e'; }
  void open_dictionary() { bytes_ += "}("; }
  void close_dictionary() { bytes_ += 'u'; }
  // What was written last, to be named again.
  Kept keep() {
    bytes_ += '\x94';
    return kept_++;
  }
  void again(Kept value);

  void whole(uint64_t number);
  void truth(bool value) { bytes_ += value ? '\x88' : '\x89'; }
  void text(std::string_view text);  // equal texts are kept
  void pair_of_wholes(uint64_t first, uint64_t second);

  // REQUIRES: every container is closed.
  std::string finish() && {
    bytes_ += '.';
    return std::move(bytes_);
  }

 private:
  std::string bytes_;
  Kept kept_ = 0;
  std::unordered_map<std::string, Kept> texts_;
};

}  // namespace spillway::tools
