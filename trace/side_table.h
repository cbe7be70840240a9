// The side table of a trace: names and settings, entries that are only ever appended, each with a length and
// a check.
//
// Thread-safety: none; the Trace holds its lock. Errors: a text that finds no room is not stored. Texts are
// cut at kMaxTextBytes.
#pragma once
#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <string_view>

#include "trace/file.h"

namespace spillway::trace {

inline constexpr size_t kMaxTextBytes = 4096;

struct SideText {
  SideType type{};
  uint32_t number = 0;
  std::string_view text;
};

// Calls `visit` for each whole entry in `bytes` and returns the offset of the first that is not whole: `size`
// if all are.
uint64_t walk_side_table(const unsigned char* bytes, uint64_t size,
                         const std::function<void(const SideText&)>& visit);

class SideTable {
 public:
  explicit SideTable(std::shared_ptr<File> file) : file_(std::move(file)) {}
  // Takes over another file's entries under the same numbers: a forked child's callers hold them.
  void adopt(const File& parent);
  uint64_t intern(std::string_view text);
  void set(std::string_view key, std::string_view value);

 private:
  bool append(SideType type, uint32_t number, std::string_view text);

  std::shared_ptr<File> file_;
  std::map<std::string, uint32_t, std::less<>> names_;
  std::map<std::string, std::string, std::less<>> settings_;
  uint32_t last_name_ = 0;
};

}  // namespace spillway::trace
