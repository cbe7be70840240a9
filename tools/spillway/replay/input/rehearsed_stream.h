// The stream of allocations that `spillway rehearse --trace` writes (docs/rehearse.md), as requests: of the
// device whose request failed last, else of that which was asked for most.
//
// Thread-safety: pure functions of the file. Ownership: plain values. Errors: `error` names the line. Units:
// bytes.
#pragma once
#include <optional>
#include <string>

#include "tools/spillway/replay/input/requests.h"

namespace spillway::tools {

struct RehearsedRequests {
  int device = 0;
  Requests requests;
};

bool begins_as_rehearsed_stream(const std::string& start);
std::optional<RehearsedRequests> read_rehearsed_stream(const std::string& path, std::string* error);

}  // namespace spillway::tools
