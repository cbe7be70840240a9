#include "allocator/request/verdict.h"

#include <algorithm>
#include <cstdio>
#include <iterator>

namespace spillway {
namespace {

class Judge {
 public:
  Judge(const Memory& memory, uint64_t request, std::optional<uint64_t> extent)
      : memory_(memory), request_(request), extent_(extent) {}

  Verdict verdict() const {
    if (extent_ && *extent_ >= request_) {
      return {Cause::kNotMemory, "an extent of " + size_text(*extent_) +
                                     " was free; the driver refused, or a test made the request fail"};
    }
    const uint64_t outside = saturated_sum(memory_.context, saturated_sum(memory_.others, memory_.reserve));
    const uint64_t room = memory_.limit - std::min(memory_.limit, outside);
    const uint64_t needed = saturated_sum(memory_.live, request_);
    return needed <= room ? held_inside() : exceeded(needed - room);
  }

 private:
  // Who has less than this part left has too little of it, in whatever pieces it lies.
  static constexpr uint64_t kFull = 32;

  static uint64_t saturated_sum(uint64_t a, uint64_t b) { return a + b < a ? ~uint64_t{0} : a + b; }

  Verdict held_inside() const {
    const uint64_t pending = memory_.pending;
    const uint64_t pools = memory_.pools;
    uint64_t pieces = 0;
    for (const uint64_t part : {memory_.stranded, memory_.cached, memory_.rounding, memory_.free})
      pieces = saturated_sum(pieces, part);
    if (below_the_limit_is_no_page(pending, pools)) {
      return {Cause::kLimit, "the limit is " + size_text(memory_.limit) + " on a device of " +
                                 size_text(memory_.device) + ", and the " + size_text(memory_.free) +
                                 " that are free below it are no whole page"};
    }
    if (pieces >= pending && pieces >= pools && pieces < memory_.limit / kFull) {
      std::string text = size_text(memory_.live) + " of " + size_text(memory_.limit) + " are in use; the " +
                         size_text(pieces) + " that are not lie in pieces";
      if (extent_ && *extent_ > 0) text += " of at most " + size_text(*extent_);
      return {Cause::kCapacity, text};
    }
    if (pieces >= pending && pieces >= pools) {
      std::string text = size_text(pieces) + " are not in use, but ";
      if (extent_ == 0)
        text += "no request can have them: they round blocks up, or are no whole page below the limit";
      else
        text += "in pieces" + (extent_ ? " of at most " + size_text(*extent_) : std::string());
      return {Cause::kFragmentation, text + "; " + size_text(request_) + " were needed at once"};
    }
    if (pending >= pools) {
      return {Cause::kPendingFrees, size_text(pending) + " are freed but still in use by queued work"};
    }
    return {Cause::kPoolIsolation,
            size_text(pools) + " lie in other memory pools, which this request cannot use"};
  }

  // What the allocator holds idle would not do, even in one piece, and the card has more.
  bool below_the_limit_is_no_page(uint64_t pending, uint64_t pools) const {
    const uint64_t idle = saturated_sum(memory_.stranded, memory_.cached);
    return extent_ && memory_.device > memory_.limit && memory_.device - memory_.limit >= request_ &&
           idle < request_ && pending < request_ && pools < request_ && memory_.free >= request_;
  }

  Verdict exceeded(uint64_t excess) const {
    const uint64_t limit = memory_.limit;
    const uint64_t device = memory_.device;
    const std::string over = size_text(excess) + " too much; ";
    if (memory_.reserve >= excess) {
      return {Cause::kReserve, over + size_text(memory_.reserve) +
                                   " are free and left to other libraries; --reserve says how much"};
    }
    if (device > limit && device - limit >= excess) {
      return {Cause::kLimit,
              over + "the limit is " + size_text(limit) + " on a device of " + size_text(device)};
    }
    if (memory_.others >= excess) {
      return {Cause::kOtherProcesses, over + "other processes hold " + size_text(memory_.others)};
    }
    if (memory_.context >= excess && memory_.context > limit / 10) {
      return {Cause::kOutsideBytes,
              over + "the CUDA context, other libraries or processes that are not seen hold " +
                  size_text(memory_.context)};
    }
    return {Cause::kCapacity, over + size_text(memory_.live) + " live and " + size_text(request_) +
                                  " asked exceed what the device can give"};
  }

  const Memory& memory_;
  const uint64_t request_;
  const std::optional<uint64_t> extent_;
};

}  // namespace

Verdict judge(const Memory& memory, uint64_t request_bytes, std::optional<uint64_t> largest_extent_bytes) {
  return Judge(memory, request_bytes, largest_extent_bytes).verdict();
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
    case Cause::kReserve:
      return "reserve";
    case Cause::kOtherProcesses:
      return "other processes";
    case Cause::kOutsideBytes:
      return "outside bytes";
    case Cause::kNotMemory:
      return "not memory";
    case Cause::kPyTorch:
      return "PyTorch";
    case Cause::kAnotherLibrary:
      return "another library";
    case Cause::kHostMemory:
      return "host memory";
    case Cause::kLeak:
      return "leak";
    case Cause::kGrowth:
      return "growth";
  }
  return "unknown";
}

std::string size_text(uint64_t bytes) {
  static constexpr const char* kNames[] = {"KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
  if (bytes < 1024) return std::to_string(bytes) + " B";
  double value = static_cast<double>(bytes) / 1024;
  size_t unit = 0;
  for (; value >= 1023.995 && unit + 1 < std::size(kNames); ++unit) value /= 1024;
  char text[32];
  std::snprintf(text, sizeof(text), "%.2f %s", value, kNames[unit]);
  return text;
}

}  // namespace spillway
