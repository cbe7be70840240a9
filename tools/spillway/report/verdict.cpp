#include "tools/spillway/report/verdict.h"

#include <algorithm>

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

Verdict of_another_library(const Incident& incident) {
  std::string text = incident.library + " asked the driver";
  if (incident.requested_bytes != 0) text += " for " + size_text(incident.requested_bytes);
  const std::optional<uint64_t> free = incident.term(Term::kFree), device = incident.term(Term::kDevice);
  if (free && device) text += " while " + size_text(*free) + " of " + size_text(*device) + " were free";
  const std::string served = served_by(incident);
  if (incident.outcome == trace::Outcome::kGranted)
    return {Cause::kAnotherLibrary, text + "; served" + (served.empty() ? "" : ": " + served)};
  text += incident.outcome ? "; not served: " : "; so far: ";
  return {Cause::kAnotherLibrary,
          text + (served.empty() ? "nothing idle was found in this process" : served)};
}

}  // namespace

Verdict judge(const Incident& incident) {
  if (!incident.library.empty() && incident.term(Term::kDevice) && !incident.term(Term::kLimit))
    return of_another_library(incident);
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
