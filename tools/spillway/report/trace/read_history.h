// A history of memory from whatever file tells one: a memory snapshot of PyTorch's, a log of RMM's, or a
// trace of Spillway's. What a file is shows in how it begins. A text of requests tells none.
//
// Thread-safety: pure function of the file. Ownership: the history keeps its texts. Errors: `error` says what
// is wrong with the file.
#pragma once
#include <optional>
#include <string>

#include "tools/spillway/history/history.h"

namespace spillway::tools {

enum class HistoryFile : uint8_t { kTrace, kSnapshot, kRmmLog, kRequests };

// A file that is none of them counts as a trace, whose reader says what is wrong with it.
HistoryFile history_file(const std::string& path);
const char* history_file_name(HistoryFile file);  // "PyTorch memory snapshot"

// For an error that says that a file has none.
inline constexpr const char* kWhoWritesOne = "; a trace has one of `spillway run --mode replace`";

std::optional<MemoryHistory> read_history(const std::string& path, std::string* error);

}  // namespace spillway::tools
