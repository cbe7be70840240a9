#include "tools/spillway/rehearse/judge/outcome.h"

#include <algorithm>
#include <charconv>
#include <sstream>

#include "simulator/cards/fat_binary.h"

namespace spillway::tools {
namespace {

uint64_t difference(uint64_t a, uint64_t b) {
  return a > b ? a - b : 0;
}

uint64_t capacity_of(const Observation& process, int device) {
  const auto found = process.devices.find(device);
  if (found == process.devices.end()) return 0;
  const std::optional<CardView>& card = found->second.card;
  return card ? card->capacity : 0;
}

uint64_t refused_parts(const CardView& card) {
  uint64_t count = 0;
  for (const auto& [label, refused] : card.refused_parts) count += refused;
  return count;
}

// The native allocator asks the card once, and once more when it has emptied its cache: one refusal for each
// such retry and one more for each request that fails in the end. Where it may not split large blocks there
// can be one more for each, of which nothing tells.
void add_refused_pages(const Observation& process, const DeviceObservation& device, uint64_t pages,
                       FailedRequests* out) {
  if (!process.has_probe || !process.problem.empty() || !device.allocator) {
    out->outside += pages;
  } else if (process.allocator == "native") {
    const uint64_t own = device.allocator->retries + device.allocator->failures;
    const uint64_t others = difference(pages, own);
    const uint64_t unsure = process.splits_are_limited ? std::min(others, own) : 0;
    out->unsure += unsure;
    out->outside += others - unsure;
  } else {
    out->unsure += pages;
  }
}

// "sm_90a", "compute_120".
cards::Image parse_architecture(const std::string& text) {
  const bool ptx = text.starts_with("compute_");
  const size_t number = text.find('_') + 1;
  cards::Image image{.ptx = ptx};
  std::from_chars(text.data() + number, text.data() + text.size(), image.sm);
  if (text.ends_with('a') || text.ends_with('f')) image.suffix = text.back();
  return image;
}

bool has_kernels_for(const Observation& process, const cards::Card& card) {
  if (process.architectures.empty()) return true;
  std::istringstream words(process.architectures);
  for (std::string word; words >> word;)
    if (runs_on(parse_architecture(word), card.major, card.minor)) return true;
  return false;
}

bool names_no_kernels(const Observation& process) {
  return process.uncaught_message.find("no kernel image is available") != std::string::npos;
}

// Whether the program ended because a request was refused, as far as this process tells.
bool ended_for_memory(const Observation& process) {
  const FailedRequests failed = failed_requests(process);
  if (process.uncaught_out_of_memory) return true;
  return process.uncaught_names_memory && failed.outside + failed.unsure > 0;
}

// Whether it did not survive its failed requests, and nobody was there to say why.
bool ended_silently(const Observation& process) {
  return process.uncaught_type.empty() && !process.has_python && failed_requests(process).seen() > 0;
}

}  // namespace

FailedRequests failed_requests(const Observation& process) {
  FailedRequests failed;
  failed.allocator = process.failure_count;
  for (const auto& [ordinal, device] : process.devices) {
    if (!device.card) continue;
    const uint64_t parts = refused_parts(*device.card);
    failed.outside += parts;
    add_refused_pages(process, device, difference(device.card->refused, parts), &failed);
  }
  return failed;
}

FailedRequests failed_requests(const Rehearsal& rehearsal) {
  FailedRequests sum;
  for (const Observation& process : rehearsal.processes) {
    const FailedRequests failed = failed_requests(process);
    sum.allocator += failed.allocator;
    sum.outside += failed.outside;
    sum.unsure += failed.unsure;
  }
  return sum;
}

bool refused_anything(const Rehearsal& rehearsal) {
  for (const Observation& process : rehearsal.processes) {
    for (const auto& [ordinal, device] : process.devices)
      if (device.card && device.card->refused > 0) return true;
  }
  return failed_requests(rehearsal).seen() > 0;
}

bool has_kernels_for(const Rehearsal& rehearsal, const cards::Card& card) {
  return std::all_of(rehearsal.processes.begin(), rehearsal.processes.end(),
                     [&](const Observation& process) { return has_kernels_for(process, card); });
}

bool is_verdict(Fit fit) {
  return fit == Fit::kFits || fit == Fit::kDoesNotFit || fit == Fit::kWentOn;
}

Fit decide(const Rehearsal& rehearsal) {
  constexpr int kSignal = 128;
  const auto& all = rehearsal.processes;
  if (rehearsal.exit_code == 0) {
    if (failed_requests(rehearsal).seen() > 0) return Fit::kWentOn;
    return std::any_of(all.begin(), all.end(), [](const Observation& p) { return p.used_devices(); })
               ? Fit::kFits
               : Fit::kNoDevice;
  }
  if (std::any_of(all.begin(), all.end(), ended_for_memory)) return Fit::kDoesNotFit;
  if (std::any_of(all.begin(), all.end(), names_no_kernels)) return Fit::kNoKernels;
  const bool said = std::any_of(all.begin(), all.end(),
                                [](const Observation& process) { return !process.uncaught_type.empty(); });
  if (said || rehearsal.exit_code > kSignal) return Fit::kProgramFailed;
  return std::any_of(all.begin(), all.end(), ended_silently) ? Fit::kDoesNotFit : Fit::kProgramFailed;
}

FailureOf deciding_failure(const Rehearsal& rehearsal) {
  FailureOf found;
  for (const Observation& process : rehearsal.processes) {
    if (process.failures.empty()) continue;
    if (process.uncaught_out_of_memory) return {&process, &process.failures.back()};
    if (found.failure == nullptr) found = {&process, &process.failures.front()};
  }
  return found;
}

Verdict verdict_of(const FailureOf& found) {
  const Failure& failure = *found.failure;
  const uint64_t capacity =
      std::max(capacity_of(*found.process, failure.device), failure.reserved + failure.device_free);
  const uint64_t outside = difference(capacity, failure.reserved + failure.device_free);
  Memory memory{};
  memory.device = capacity;
  memory.limit = failure.limit == 0 ? capacity : std::min(failure.limit, capacity);
  memory.live = failure.allocated;
  memory.cached = difference(failure.reserved, failure.allocated);
  memory.reserved = failure.reserved;
  memory.context = outside;
  memory.free = difference(memory.limit, failure.reserved + outside);
  return judge(memory, failure.requested, std::nullopt);
}

uint64_t modelled_on(const CardView& card) {
  uint64_t sum = 0;
  for (const auto& [label, bytes] : card.modelled_at_peak)
    if (certainty_of(card, label) == cards::Certainty::kModelled) sum += bytes;
  return sum;
}

Need need_of(const DeviceObservation& device) {
  Need need;
  if (device.allocator) {
    need.allocated = device.allocator->peak_allocated;
    need.reserved = device.allocator->peak_reserved;
  }
  if (device.card) {
    need.peak = device.card->peak;
    need.capacity = device.card->capacity;
    // A process that was stopped has its card's figures of its end, and PyTorch's of a little earlier.
    if (device.allocator) need.reserved = std::max(need.reserved, device.card->allocator_at_peak);
    // An allocator that moves pages between segments may report them in both for a moment.
    if (need.peak > 0) need.reserved = std::min(need.reserved, need.peak);
  }
  need.peak = std::max(need.peak, need.reserved);
  need.outside = device.card ? need.peak - std::min(need.peak, device.card->allocator_at_peak) : 0;
  need.outside_peak = device.card ? device.card->outside_peak : 0;
  need.modelled = device.card ? modelled_on(*device.card) : 0;
  return need;
}

int physical_of(const DeviceObservation& device) {
  return device.card ? device.card->physical : device.ordinal;
}

cards::Certainty certainty_of(const CardView& card, const std::string& label) {
  constexpr int kMajorWithoutCard = 8;  // the simulator's own
  const cards::Card* known = cards::find_card(card.card);
  const cards::Overhead* row = cards::find_overhead(label, known ? known->major : kMajorWithoutCard);
  return row ? row->certainty : cards::Certainty::kModelled;
}

const char* certainty_name(cards::Certainty certainty) {
  switch (certainty) {
    case cards::Certainty::kDocumented:
      return "documented";
    case cards::Certainty::kMeasured:
      return "measured";
    case cards::Certainty::kModelled:
      return "modelled";
  }
  return "";
}

std::vector<CardNeed> needs_of(const Rehearsal& rehearsal) {
  std::map<int, CardNeed> cards;
  for (const Observation& process : rehearsal.processes) {
    for (const auto& [ordinal, device] : process.devices) {
      const Need need = need_of(device);
      CardNeed& card = cards[physical_of(device)];
      if (need.peak > 0) card.processes += std::max<uint64_t>(process.unreported, 1);
      card.need.allocated += need.allocated;
      card.need.reserved += need.reserved;
      card.need.outside += need.outside;
      card.need.outside_peak += need.outside_peak;
      card.need.modelled += need.modelled;
      card.need.peak = std::max({card.need.peak, need.peak, device.card ? device.card->machine_peak : 0});
      card.need.capacity = std::max(card.need.capacity, need.capacity);
    }
  }
  std::vector<CardNeed> needs;
  for (auto& [physical, card] : cards) {
    card.physical = physical;
    Need& need = card.need;
    if (const auto record = rehearsal.cards.find(physical); record != rehearsal.cards.end())
      need.peak = std::max(need.peak, record->second.peak);
    for (uint64_t* part :
         {&need.allocated, &need.reserved, &need.outside, &need.outside_peak, &need.modelled})
      *part = std::min(*part, need.peak);
    needs.push_back(card);
  }
  return needs;
}

Need largest_need(const Rehearsal& rehearsal) {
  Need largest;
  for (const CardNeed& card : needs_of(rehearsal))
    if (card.need.peak >= largest.peak) largest = card.need;
  return largest;
}

ReadTotals reads_of(const Observation& process) {
  std::map<ReadKind, uint64_t> counts;
  for (const Read& read : process.reads) counts[read.kind] += read.count;
  uint64_t small = 0, bulk = 0;
  for (const DriverReads& reads : process.driver_reads) {
    small += reads.small;
    bulk += reads.bulk;
  }
  using enum ReadKind;
  ReadTotals totals;
  totals.shape = counts[kShape];
  totals.value = counts[kValue] + counts[kBranch];
  totals.number = counts[kNumber];
  totals.copy_without_line =
      difference(small, counts[kShape] + counts[kValue] + counts[kNumber] + counts[kCopy]);
  totals.bulk_without_line = difference(bulk, counts[kBulk]);
  totals.copy = counts[kCopy] + totals.copy_without_line;
  totals.bulk = counts[kBulk] + totals.bulk_without_line;
  return totals;
}

ReadTotals reads_of(const Rehearsal& rehearsal) {
  ReadTotals totals;
  for (const Observation& process : rehearsal.processes) {
    const ReadTotals one = reads_of(process);
    totals.shape += one.shape;
    totals.value += one.value;
    totals.copy += one.copy;
    totals.bulk += one.bulk;
    totals.number += one.number;
    totals.copy_without_line += one.copy_without_line;
    totals.bulk_without_line += one.bulk_without_line;
  }
  return totals;
}

uint64_t assumed_sizes_of(const Rehearsal& rehearsal) {
  uint64_t sum = 0;
  for (const Observation& process : rehearsal.processes) sum += process.assumed_sizes;
  return sum;
}

std::map<std::string, uint64_t> uncomputed_of(const Rehearsal& rehearsal) {
  std::map<std::string, uint64_t> all;
  for (const Observation& process : rehearsal.processes)
    for (const auto& [kernel, launches] : process.uncomputed) all[kernel] += launches;
  return all;
}

bool is_conditional(const std::string& values, const Rehearsal& rehearsal) {
  return values == "compute" ? !uncomputed_of(rehearsal).empty() : reads_of(rehearsal).decide();
}

}  // namespace spillway::tools
