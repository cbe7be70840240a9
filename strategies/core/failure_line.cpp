// One line for people: the request, what kind of shortage it was, what was tried, and where more is said.
#include "allocator/request/verdict.h"

#include "strategies/core/process.h"

namespace spillway {

std::string verdict(const Failure& failure, const std::string& story) {
  const OomEvent& event = failure.event;
  const Verdict judged = judge(failure.memory, event.rounded_bytes, event.largest_extent_bytes);
  const std::string trace = Process::get().trace_path();
  return "out of memory on device " + std::to_string(static_cast<int>(event.device)) + ": " +
         size_text(event.requested_bytes) + " asked, " + size_text(event.short_bytes) + " short; " +
         cause_name(judged.cause) + ": " + judged.text + "; tried: " + (story.empty() ? "nothing" : story) +
         (trace.empty() ? "" : "; report: spillway report " + trace);
}

}  // namespace spillway
