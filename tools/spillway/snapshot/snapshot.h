// Reads a memory snapshot of PyTorch's (torch.cuda.memory._dump_snapshot, and what C++ writes).
//
// Thread-safety: pure functions of the file. Ownership: the history keeps the file's texts. Errors: `error`
// says what is wrong; a file that is only damaged gives what is whole, and says so in `incomplete`.
#pragma once
#include <optional>
#include <string>
#include <string_view>

#include "tools/spillway/history/history.h"
#include "tools/spillway/snapshot/pickle/byte_stream.h"

namespace spillway::tools {

// Under this setting Spillway's own snapshots say what they lack; it becomes `MemoryHistory::incomplete`.
inline constexpr const char* kIncompleteSetting = "spillway_incomplete";

// Nothing, and `error`, for a file that is no snapshot.
std::optional<MemoryHistory> read_snapshot(const std::string& path, std::string* error);
// The same of a file's contents.
std::optional<MemoryHistory> parse_snapshot(ByteStream bytes, std::string* error);
std::optional<MemoryHistory> parse_snapshot(std::string_view bytes, std::string* error);

}  // namespace spillway::tools
