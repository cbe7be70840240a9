#include "tools/spillway/report/verdict.h"

#include <algorithm>

namespace spillway::tools {

using trace::Term;

Verdict judge(const Incident& incident) {
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
