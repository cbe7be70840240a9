#include "tools/spillway/snapshot/pickle/pickle_writer.h"

#include "base/utf8.h"

namespace spillway::tools {
namespace {

void append_little_endian(std::string* to, uint64_t number, int bytes) {
  for (int i = 0; i < bytes; ++i) *to += static_cast<char>(number >> (8 * i));
}

}  // namespace

void PickleWriter::again(Kept value) {
  bytes_ += value < 256 ? 'h' : 'j';
  append_little_endian(&bytes_, value, value < 256 ? 1 : 4);
}

void PickleWriter::whole(uint64_t number) {
  if (number < 256) {
    bytes_ += 'K';
    append_little_endian(&bytes_, number, 1);
  } else if (number <= INT32_MAX) {
    bytes_ += 'J';
    append_little_endian(&bytes_, number, 4);
  } else {
    bytes_ += "\x8a\x09";  // of 9 bytes, so that no number is taken for a negative one
    append_little_endian(&bytes_, number, 8);
    bytes_ += '\0';
  }
}

void PickleWriter::text(std::string_view text) {
  const auto [known, is_new] = texts_.try_emplace(std::string(text), kept_);
  if (!is_new) return again(known->second);
  const std::string valid = valid_utf8(text);
  bytes_ += 'X';
  append_little_endian(&bytes_, valid.size(), 4);
  bytes_ += valid;
  keep();
}

void PickleWriter::pair_of_wholes(uint64_t first, uint64_t second) {
  whole(first);
  whole(second);
  bytes_ += '\x86';
}

}  // namespace spillway::tools
