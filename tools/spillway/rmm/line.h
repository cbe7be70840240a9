// A line of a log that RAPIDS' memory manager (RMM) writes: its `logging_resource_adaptor`.
//
// The columns are Thread, Time, Action, Pointer, Size and Stream; a first line names them. Versions of RMM
// differ in how they write a null pointer ("0x0", "(nil)", "0") and the time ("15:04:05.000123" with '.' or
// ':' before the microseconds); its manual shows seconds since 1970 and "deallocate" for "free". Other
// programs' lines may lie between them where the log went to a terminal.
//
// Thread-safety: pure functions. Ownership: `thread` is a view of the line. Units: bytes, microseconds.
// Errors: nothing for a line of another form.
#pragma once
#include <array>
#include <cstdint>
#include <optional>
#include <string_view>

namespace spillway::tools {

enum class RmmAction : uint8_t { kAllocate, kFree, kFailure };

struct RmmLine {
  std::string_view thread;
  uint64_t microseconds = 0;  // of the day, or since 1970
  RmmAction action = RmmAction::kAllocate;
  uint64_t pointer = 0, size = 0, stream = 0;
};

class RmmColumns {
 public:
  // The order that a header gives; nothing: the line is none.
  static std::optional<RmmColumns> of_header(std::string_view line);
  std::optional<RmmLine> read(std::string_view line) const;

 private:
  static constexpr size_t kCount = 6;
  std::array<size_t, kCount> place_{0, 1, 2, 3, 4, 5};  // of each of them, in the line
};

// Whether a file that begins so is such a log: by its header, or without one by its first line.
bool begins_as_rmm_log(std::string_view start);

}  // namespace spillway::tools
