// One line for people: what kind of shortage it was, the request, and what was tried.
#include "strategies/process.h"

namespace spillway {
namespace {

std::string amount(uint64_t bytes) {
  const bool large = bytes >= uint64_t{10} << 20;
  const uint64_t unit = large ? 1 << 20 : 1 << 10;
  return std::to_string((bytes + unit / 2) / unit) + (large ? " MiB" : " KiB");
}

// The term that is to blame: the first that would have covered what is short.
std::string cause(const OomEvent& event, const Memory& memory) {
  const uint64_t usable = memory.limit - memory.context;
  const uint64_t missing = event.short_bytes;
  if (event.rounded_bytes > usable) return "the request is larger than the limit of " + amount(memory.limit);
  if (memory.pending >= missing) return amount(memory.pending) + " wait for other streams";
  if (memory.stranded + memory.cached >= missing)
    return "fragmentation: " + amount(memory.stranded + memory.cached) + " are free, the largest piece has " +
           amount(event.largest_extent_bytes);
  if (memory.pools >= missing) return amount(memory.pools) + " are idle in private pools";
  if (memory.others >= missing) return "others on this device hold " + amount(memory.others);
  return "capacity: " + amount(memory.live + memory.rounding) + " of " + amount(memory.limit) + " are in use";
}

}  // namespace

std::string verdict(const Failure& failure, const std::string& story) {
  const OomEvent& event = failure.event;
  std::string out = "out of memory on device " + std::to_string(static_cast<int>(event.device)) + ": " +
                    amount(event.requested_bytes) + " asked, " + amount(event.short_bytes) + " short; " +
                    cause(event, failure.memory);
  return out + "; tried: " + (story.empty() ? "nothing" : story);
}

}  // namespace spillway
