// A history of memory from whatever file tells one: a memory snapshot of PyTorch's, or a trace of Spillway's.
//
// Thread-safety: pure function of the file. Ownership: the history keeps its texts. Errors: `error` says what
// is wrong with the file.
#pragma once
#include <optional>
#include <string>

#include "tools/spillway/history/history.h"

namespace spillway::tools {

std::optional<MemoryHistory> read_history(const std::string& path, std::string* error);
// Whether the file is a pickle, as a snapshot is.
bool is_snapshot(const std::string& path);

}  // namespace spillway::tools
