// A file that can be replayed: a memory snapshot of PyTorch's, a trace of Spillway's, the stream of a
// rehearsal, or a text of requests.
//
// Thread-safety: pure functions of the file. Ownership: plain values; the history keeps its texts. Errors:
// `error` says what is wrong with the file. Units: bytes.
#pragma once
#include <optional>
#include <string>

#include "tools/spillway/history/history.h"
#include "tools/spillway/replay/input/requests.h"
#include "tools/spillway/replay/torch/torch_settings.h"

namespace spillway::tools {

struct ReplayInput {
  const char* kind = "";  // "PyTorch memory snapshot"
  Requests requests;
  TorchSettings settings;  // of PyTorch's allocator, as the file says
  std::string alloc_conf;  // the same as text
  int device = 0;
  MemoryHistory origin;    // stacks, texts and settings of the file, without its devices
  std::string incomplete;  // what the file does not hold; "" of a whole one
  uint64_t unknown_bytes = 0;
  // What the allocator had when the last request failed: reserved + free. Nothing: none failed.
  std::optional<uint64_t> capacity;
};

// Of the device of the last failure, else of the one that holds most.
std::optional<ReplayInput> read_replay_input(const std::string& path, std::string* error);

inline constexpr const char* kAllocConfNames[] = {"PYTORCH_ALLOC_CONF", "PYTORCH_CUDA_ALLOC_CONF"};

// The setting PYTORCH_ALLOC_CONF, or its older name; "" without either.
std::string alloc_conf_of(const MemoryHistory& history);
TorchSettings torch_settings_of(const MemoryHistory& history);

}  // namespace spillway::tools
