#include "tools/spillway/report/verdict.h"

#include <algorithm>

#include "tools/spillway/units.h"

namespace spillway::tools {
namespace {

using trace::Term;

class Judge {
 public:
  explicit Judge(const Incident& incident)
      : incident_(incident), request_(std::max(incident.rounded_bytes, incident.requested_bytes)) {}

  Verdict verdict() const {
    if (!incident_.term(Term::kLimit) || !incident_.term(Term::kLive) || request_ == 0) {
      return {Cause::kUnknown, "the trace does not hold the request and its equation"};
    }
    if (const uint64_t extent = bytes(Term::kLargestExtent); extent >= request_) {
      return {Cause::kNotMemory, "an extent of " + size_text(extent) +
                                     " was free; the driver refused, or a test made the request fail"};
    }
    const uint64_t outside = saturated_sum(bytes(Term::kContext), bytes(Term::kOthers));
    const uint64_t room = bytes(Term::kLimit) - std::min(bytes(Term::kLimit), outside);
    const uint64_t needed = saturated_sum(bytes(Term::kLive), request_);
    return needed <= room ? held_inside() : exceeded(needed - room);
  }

 private:
  static uint64_t saturated_sum(uint64_t a, uint64_t b) { return a + b < a ? ~uint64_t{0} : a + b; }
  uint64_t bytes(Term term) const { return incident_.term(term).value_or(0); }

  Verdict held_inside() const {
    const uint64_t pending = bytes(Term::kPending);
    const uint64_t pools = bytes(Term::kPools);
    uint64_t pieces = 0;
    for (const Term term : {Term::kStranded, Term::kCached, Term::kRounding, Term::kFree}) {
      pieces = saturated_sum(pieces, bytes(term));
    }
    if (pieces >= pending && pieces >= pools) {
      std::string text = size_text(pieces) + " are not in use, but in pieces";
      if (const auto extent = incident_.term(Term::kLargestExtent))
        text += " of at most " + size_text(*extent);
      return {Cause::kFragmentation, text + "; " + size_text(request_) + " were needed at once"};
    }
    if (pending >= pools) {
      return {Cause::kPendingFrees, size_text(pending) + " are freed but still in use by queued work"};
    }
    return {Cause::kPoolIsolation,
            size_text(pools) + " lie in other memory pools, which this request cannot use"};
  }

  Verdict exceeded(uint64_t excess) const {
    const uint64_t limit = bytes(Term::kLimit);
    const uint64_t device = bytes(Term::kDevice);
    const std::string over = size_text(excess) + " too much; ";
    if (device > limit && device - limit >= excess) {
      return {Cause::kLimit,
              over + "the limit is " + size_text(limit) + " on a device of " + size_text(device)};
    }
    if (bytes(Term::kOthers) >= excess) {
      return {Cause::kOtherProcesses, over + "other processes hold " + size_text(bytes(Term::kOthers))};
    }
    if (bytes(Term::kContext) >= excess && bytes(Term::kContext) > limit / 10) {
      return {Cause::kOutsideBytes,
              over + "the CUDA context and other libraries hold " + size_text(bytes(Term::kContext))};
    }
    return {Cause::kCapacity, over + size_text(bytes(Term::kLive)) + " live and " + size_text(request_) +
                                  " asked exceed what the device can give"};
  }

  const Incident& incident_;
  const uint64_t request_;
};

}  // namespace

Verdict judge(const Incident& incident) {
  return Judge(incident).verdict();
}

const char* cause_name(Cause cause) {
  switch (cause) {
    case Cause::kUnknown:
      return "unknown";
    case Cause::kCapacity:
      return "capacity";
    case Cause::kFragmentation:
      return "fragmentation";
    case Cause::kPendingFrees:
      return "pending frees";
    case Cause::kPoolIsolation:
      return "pool isolation";
    case Cause::kLimit:
      return "limit";
    case Cause::kOtherProcesses:
      return "other processes";
    case Cause::kOutsideBytes:
      return "outside bytes";
    case Cause::kNotMemory:
      return "not memory";
  }
  return "unknown";
}

}  // namespace spillway::tools
