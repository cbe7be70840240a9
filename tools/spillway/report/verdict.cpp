#include "tools/spillway/report/verdict.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <string_view>

#include "tools/spillway/report/course.h"
#include "tools/spillway/units.h"

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
  const std::optional<uint64_t> free = incident.term(Term::kFree), limit = incident.term(Term::kLimit);
  const std::optional<uint64_t> device = limit ? limit : incident.term(Term::kDevice);
  if (free && device) text += " while " + size_text(*free) + " of " + size_text(*device) + " were free";
  const std::string served = served_by(incident);
  if (incident.outcome == trace::Outcome::kGranted)
    return {cause, text + "; served" + (served.empty() ? "" : ": " + served)};
  text += incident.outcome ? "; not served: " : "; so far: ";
  return {cause, text + (served.empty() ? "nothing was given back" : served)};
}

Verdict of_the_host(const Incident& incident, uint64_t available) {
  const uint64_t asked = incident.requested_bytes;  // 0: not known
  std::string text =
      asked == 0 ? "memory of the host was asked for" : size_text(asked) + " of host memory were asked for";
  text += ", not of the card; " + size_text(available) + " are available on the machine";
  if (available >= asked) text += ": a limit of the process (ulimit -v, ulimit -l) refused it";
  return {Cause::kHostMemory, text};
}

}  // namespace

bool is_driver_call(const Incident& incident) {
  return !incident.library.empty() && incident.term(Term::kDevice) && !incident.term(Term::kLargestExtent);
}

bool is_of_history(const Incident& incident) {
  return incident.term(Term::kLimit).has_value() && !is_driver_call(incident) &&
         incident.outcome != trace::Outcome::kGranted;
}

std::string caller_text(const std::string& library) {
  if (!is_pytorchs(library)) return library;
  return std::string(is_pytorchs_allocator(library) ? "PyTorch's allocator" : "PyTorch") + " (" + library +
         ")";
}

namespace {

std::string with_neighbours(const Incident& incident) {
  constexpr size_t kMost = 3;
  std::string text;
  for (size_t i = 0; i < std::min(incident.neighbours.size(), kMost); ++i) {
    const Neighbour& neighbour = incident.neighbours[i];
    text += (i == 0 ? ": process " : ", process ") + std::to_string(neighbour.process) + " (" +
            (neighbour.program.empty() ? "not named" : neighbour.program) + ") holds " +
            size_text(neighbour.held_bytes);
  }
  return text;
}

// What is in use grew all along, by more than was missing: without that the request would have had room.
std::optional<Verdict> by_course(const Incident& incident, uint64_t request) {
  const std::optional<SteadyRise> rise = steady_rise(incident.course);
  if (!rise) return std::nullopt;
  const uint64_t grown = rise->to_bytes - rise->from_bytes;
  if (grown < request || grown < rise->to_bytes / 8) return std::nullopt;
  return Verdict{
      Cause::kGrowth,
      "what PyTorch has in use rose all along, from " + size_text(rise->from_bytes) + " to " +
          size_text(rise->to_bytes) + " in " + duration_text(rise->span_ns / 1000) +
          ": something is kept, or gets larger, with each step; spillway run --mode replace names it"};
}

// PyTorch asked for another library's sake, or a library for itself, while what it needed lay idle.
std::string held_by_the_cache(const Incident& incident) {
  const uint64_t cached = incident.term(Term::kCached).value_or(0);
  if (cached == 0 || cached < incident.requested_bytes) return "";
  return "; PyTorch's cache holds " + size_text(cached) +
         " that nothing uses: torch.cuda.empty_cache() before it, spillway run --reserve, or --mode replace "
         "leave it room";
}

// The smallest fraction of the card, in hundredths, that leaves room for so many bytes.
std::string fraction_for(uint64_t bytes, uint64_t device) {
  const auto wanted = static_cast<double>(bytes), whole = static_cast<double>(device);
  double hundredths = std::ceil(100 * wanted / whole);
  if (hundredths / 100 * whole < wanted) ++hundredths;  // it was rounded
  char text[32];
  std::snprintf(text, sizeof text, "%.2f", hundredths / 100);
  return text;
}

// Whose limit it was, and what of it would have been enough for this request.
std::string of_a_framework_limit(const Incident& incident, uint64_t request) {
  const auto device_free = incident.term(Term::kDeviceFree);
  if (!device_free) return "";
  const uint64_t limit = incident.term(Term::kLimit).value_or(0);
  const uint64_t device = incident.term(Term::kDevice).value_or(0);
  const uint64_t held = limit - std::min(limit, incident.term(Term::kFree).value_or(0));
  const bool card_has_it = request <= *device_free && held <= device && request <= device - held;
  return "; the limit of " + size_text(limit) +
         " is PyTorch's own (torch.cuda.set_per_process_memory_fraction), and " + size_text(*device_free) +
         " of the card are free: " + (card_has_it ? fraction_for(held + request, device) : "no fraction") +
         " would have let this request in";
}

}  // namespace

Verdict judge(const Incident& incident) {
  if (const auto available = incident.term(Term::kHostAvailable)) return of_the_host(incident, *available);
  const bool by_equation = is_pytorchs_allocator(incident.library) && incident.term(Term::kLimit) &&
                           incident.outcome != trace::Outcome::kGranted;
  if (is_driver_call(incident) && !by_equation) {
    Verdict verdict = of_a_driver_call(incident);
    if (incident.outcome == trace::Outcome::kGiveUp) verdict.text += held_by_the_cache(incident);
    return verdict;
  }
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
  memory.reserve = bytes(Term::kReserve);
  memory.free = bytes(Term::kFree);
  memory.device = bytes(Term::kDevice);
  Verdict verdict = spillway::judge(memory, request, incident.term(Term::kLargestExtent));
  if (verdict.cause == Cause::kOtherProcesses) verdict.text += with_neighbours(incident);
  const bool of_size = verdict.cause == Cause::kCapacity || verdict.cause == Cause::kFragmentation;
  if (of_size || verdict.cause == Cause::kLimit) {
    if (const auto grown = by_course(incident, request)) return *grown;
  }
  verdict.text += of_a_framework_limit(incident, request);
  // Of Spillway's own allocator the history of blocks tells it.
  if (of_size && is_pytorchs_allocator(incident.library) && incident.course.size() < kFewestPoints)
    verdict.text +=
        "; the program ran too shortly to see whether what it has in use grows: spillway run --mode replace "
        "tells";
  return verdict;
}

}  // namespace spillway::tools
