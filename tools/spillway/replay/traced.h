// What Spillway's own allocator did in a replay, from the trace that it writes itself.
//
// Thread-safety: one in a process. Ownership: the trace's file is removed with it. Errors: `start` says what
// failed. Units: bytes.
#pragma once
#include <memory>
#include <string>

#include "tools/spillway/history/history.h"
#include "tools/spillway/replay/input/requests.h"

namespace spillway::trace {
class Trace;
}

namespace spillway::tools {

class TracedReplay {
 public:
  explicit TracedReplay(const Requests& requests);
  ~TracedReplay();
  TracedReplay(const TracedReplay&) = delete;
  TracedReplay& operator=(const TracedReplay&) = delete;

  // Null, and `error`, without room for the file.
  trace::Trace* start(std::string* error);
  // The history, with the times, stacks and steps of the requests. `fails`: the last request was not served.
  // `incomplete`: what the trace has lost, or "".
  DeviceHistory finish(bool fails, std::string* incomplete) const;

 private:
  const Requests& requests_;
  std::string folder_;
  std::unique_ptr<trace::Trace> trace_;
};

}  // namespace spillway::tools
