#include "tools/spillway/report/verdict.h"

#include <algorithm>
#include <string_view>

namespace spillway::tools {

using trace::Term;

namespace {

std::string served_by(const Incident& incident) {
  std::string names;
  uint64_t bytes = 0;
  for (const LadderTry& tried : incident.tries) {
    if (tried.measured_bytes == 0) continue;
    names += (names.empty() ? "" : " and ") + tried.strategy;
    bytes += tried.measured_bytes;
  }
  return names.empty() ? "" : names + " gave " + size_text(bytes);
}

bool is_pytorchs(std::string_view library) {
  return library.starts_with("libc10") || library.starts_with("libtorch");
}

bool is_pytorchs_allocator(std::string_view library) {
  return library.starts_with("libc10_cuda");
}

Verdict of_a_driver_call(const Incident& incident) {
  const Cause cause = is_pytorchs(incident.library) ? Cause::kPyTorch : Cause::kAnotherLibrary;
  std::string text =
      (is_pytorchs_allocator(incident.library) ? "its allocator" : incident.library) + " asked the driver";
  if (incident.requested_bytes != 0) text += " for " + size_text(incident.requested_bytes);
  const std::optional<uint64_t> free = incident.term(Term::kFree), device = incident.term(Term::kDevice);
  if (free && device) text += " while " + size_text(*free) + " of " + size_text(*device) + " were free";
  const std::string served = served_by(incident);
  if (incident.outcome == trace::Outcome::kGranted)
    return {cause, text + "; served" + (served.empty() ? "" : ": " + served)};
  text += incident.outcome ? "; not served: " : "; so far: ";
  return {cause, text + (served.empty() ? "nothing idle was found in this process" : served)};
}

}  // namespace

bool is_driver_call(const Incident& incident) {
  return !incident.library.empty() && incident.term(Term::kDevice) && !incident.term(Term::kLargestExtent);
}

std::string caller_text(const std::string& library) {
  if (!is_pytorchs(library)) return library;
  return std::string(is_pytorchs_allocator(library) ? "PyTorch's allocator" : "PyTorch") + " (" + library +
         ")";
}

Verdict judge(const Incident& incident) {
  const bool by_equation = is_pytorchs_allocator(incident.library) && incident.term(Term::kLimit) &&
                           incident.outcome != trace::Outcome::kGranted;
  if (is_driver_call(incident) && !by_equation) return of_a_driver_call(incident);
  const uint64_t request = std::max(incident.rounded_bytes, incident.requested_bytes);
  if (!incident.term(Term::kLimit) || !incident.term(Term::kLive) || request == 0)
    return {Cause::kUnknown, "the trace does not hold the request and its equation"};
  const auto bytes = [&](Term term) { return incident.term(term).value_or(0); };
  Memory memory;
  memory.limit = bytes(Term::kLimit);
  memory.live = bytes(Term::kLive);
  memory.rounding = bytes(Term::kRounding);
  memory.stranded = bytes(Term::kStranded);
  memory.cached = bytes(Term::kCached);
  memory.pending = bytes(Term::kPending);
  memory.pools = bytes(Term::kPools);
  memory.context = bytes(Term::kContext);
  memory.others = bytes(Term::kOthers);
  memory.free = bytes(Term::kFree);
  memory.device = bytes(Term::kDevice);
  return spillway::judge(memory, request, incident.term(Term::kLargestExtent));
}

}  // namespace spillway::tools
