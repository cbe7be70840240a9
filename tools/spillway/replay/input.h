// A file that can be replayed: a memory snapshot of PyTorch's, a trace of Spillway's, or a stream of
// requests.
//
// Thread-safety: pure functions of the file. Ownership: plain values; the history keeps its texts. Errors:
// `error` says what is wrong with the file. Units: bytes.
#pragma once
#include <optional>
#include <string>

#include "tools/spillway/history/history.h"
#include "tools/spillway/replay/requests.h"
#include "tools/spillway/replay/torch_settings.h"

namespace spillway::tools {

struct ReplayInput {
  const char* kind = "";  // "PyTorch memory snapshot"
  Requests requests;
  TorchSettings settings;  // of PyTorch's allocator, as the file says
  std::string incomplete;  // what the file does not hold; "" of a whole one
  uint64_t unknown_bytes = 0;
  // What the allocator had when the last request failed: reserved + free. Nothing: none failed.
  std::optional<uint64_t> capacity;
};

// Of the device of the last failure, else of the one that holds most.
std::optional<ReplayInput> read_replay_input(const std::string& path, std::string* error);

// The setting PYTORCH_ALLOC_CONF, or its older name.
TorchSettings torch_settings_of(const MemoryHistory& history);

}  // namespace spillway::tools
