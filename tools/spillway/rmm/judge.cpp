#include "tools/spillway/rmm/judge.h"

#include <algorithm>

#include "tools/spillway/units.h"

namespace spillway::tools {
namespace {

Verdict verdict_on(uint64_t in_use, uint64_t request, uint64_t peak, std::optional<uint64_t> capacity) {
  const uint64_t wanted = in_use + std::min(request, UINT64_MAX - in_use);
  const std::string both = size_text(in_use) + " in use and " + size_text(request) + " asked";
  if (capacity && wanted > *capacity)
    return {Cause::kCapacity,
            size_text(wanted - *capacity) + " too much; " + both + " exceed " + size_text(*capacity)};
  if (capacity)
    return {Cause::kFragmentation,
            size_text(*capacity - in_use) + " of " + size_text(*capacity) + " were not in use, but " +
                size_text(request) + " in one piece were not found: they lay in pieces, or not in the pool"};
  if (wanted <= peak)
    return {Cause::kFragmentation,
            both + " are no more than the " + size_text(peak) +
                " that were in use earlier: what was not in use lay in pieces, or others have it"};
  return {Cause::kUnknown,
          both + " are more than was ever in use before; the log does not say how much there was"};
}

}  // namespace

void judge_by_requests(HistoryFindings* found) {
  Holdings& at = found->holdings;
  at.free.reset();
  if (!found->failure || found->verdict.cause == Cause::kLeak || found->verdict.cause == Cause::kGrowth)
    return;
  found->verdict = verdict_on(at.in_use, found->failure->bytes, found->peak_bytes, at.capacity);
}

}  // namespace spillway::tools
