// Memory snapshots of PyTorch's: from memory, and from a file in pieces of a few bytes, which must tell the
// same.
#include "tests/fuzz/anonymous_file.h"
#include "tests/fuzz/promises/history_promises.h"
#include "tests/fuzz/promises/promise.h"
#include "tools/spillway/snapshot/snapshot.h"
#include "tools/spillway/snapshot/write.h"

namespace spillway::fuzz {
namespace {

using namespace tools;

std::string all_of(const std::optional<MemoryHistory>& history, const std::string& error) {
  return history ? snapshot_of(*history) + history->incomplete + std::to_string(history->passed_over) : error;
}

void answers(const uint8_t* data, size_t size) {
  static const AnonymousFile file;
  const std::string_view bytes(reinterpret_cast<const char*>(data), size);
  const uint64_t choice = choice_of(data, size);
  std::string error;
  const auto history = parse_snapshot(bytes, &error);
  promise(history.has_value() || !error.empty(), "a file that is no snapshot is said to be none");

  file.hold(data, size);
  const size_t piece = 1 + choice / 7 % 200;
  std::string error_of_pieces;
  const auto of_pieces = parse_snapshot(ByteStream(file.descriptor(), size, piece), &error_of_pieces);
  promise(all_of(history, error) == all_of(of_pieces, error_of_pieces), "a file in pieces tells the same");
  if (!history) return;

  // What is whole before the file's end is whole.
  std::string ignored;
  const std::string_view start = bytes.substr(0, choice / 11 % (size + 1));
  const auto begun = parse_snapshot(start, &ignored);
  promise(!begun || !begun->incomplete.empty() || history->incomplete.empty(),
          "a file of which a part is whole is whole");
  keeps_promises(*history, choice);
}

}  // namespace
}  // namespace spillway::fuzz

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  spillway::fuzz::answers(data, size);
  return 0;
}
