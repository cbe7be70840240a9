// Where the page of a trace's report stands, for all who write one: `spillway run` and the trainer. It
// belongs to no folder: everybody may use it.
//
// Thread-safety: pure function. Errors: none.
#pragma once
#include <string>
#include <string_view>

namespace spillway {

// Beside the trace: "run.spill" has "run.html".
inline std::string page_beside(const std::string& trace) {
  constexpr std::string_view kEnding = ".spill";
  return (trace.ends_with(kEnding) ? trace.substr(0, trace.size() - kEnding.size()) : trace) + ".html";
}

}  // namespace spillway
