#include "tools/spillway/rehearse/outcome.h"

#include <algorithm>

#include "spillway/allocator/verdict.h"

namespace spillway::tools {
namespace {

uint64_t difference(uint64_t a, uint64_t b) {
  return a > b ? a - b : 0;
}

uint64_t capacity_of(const Observation& process, int device) {
  const auto found = process.devices.find(device);
  return found != process.devices.end() && found->second.card ? found->second.card->capacity : 0;
}

}  // namespace

uint64_t failed_requests(const Rehearsal& rehearsal) {
  uint64_t count = 0;
  for (const Observation& process : rehearsal.processes) {
    count += process.failure_count;
    if (process.has_probe && process.problem.empty()) continue;
    for (const auto& [ordinal, device] : process.devices) count += device.card ? device.card->refused : 0;
  }
  return count;
}

Fit decide(const Rehearsal& rehearsal) {
  const bool failed = failed_requests(rehearsal) > 0;
  if (rehearsal.exit_code == 0) return failed ? Fit::kWentOn : Fit::kFits;
  const auto& all = rehearsal.processes;
  if (std::any_of(all.begin(), all.end(), [](const Observation& p) { return p.uncaught_out_of_memory; }))
    return Fit::kDoesNotFit;
  if (std::any_of(all.begin(), all.end(), [](const Observation& p) { return !p.uncaught_type.empty(); }))
    return Fit::kProgramFailed;
  return failed ? Fit::kDoesNotFit : Fit::kProgramFailed;
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

std::string cause_of(const FailureOf& found) {
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
  return judge(memory, failure.requested, std::nullopt).text;
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
  }
  need.peak = std::max(need.peak, need.reserved);
  need.outside = device.card ? need.peak - std::min(need.peak, device.card->allocator_at_peak) : 0;
  need.outside_peak = device.card ? device.card->outside_peak : 0;
  return need;
}

int physical_of(const DeviceObservation& device) {
  return device.card ? device.card->physical : device.ordinal;
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
    for (uint64_t* part : {&need.allocated, &need.reserved, &need.outside, &need.outside_peak})
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
  ReadTotals totals;
  uint64_t small = 0, bulk = 0;
  for (const DriverReads& reads : process.driver_reads) {
    small += reads.small;
    bulk += reads.bulk;
  }
  for (const Read& read : process.reads) {
    (read.kind == ReadKind::kShape   ? totals.shape
     : read.kind == ReadKind::kValue ? totals.value
     : read.kind == ReadKind::kBulk  ? totals.bulk
                                     : totals.copy) += read.count;
  }
  totals.copy_without_line = difference(small, totals.shape + totals.value + totals.copy);
  totals.bulk_without_line = difference(bulk, totals.bulk);
  totals.copy += totals.copy_without_line;
  totals.bulk += totals.bulk_without_line;
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
    totals.copy_without_line += one.copy_without_line;
    totals.bulk_without_line += one.bulk_without_line;
  }
  return totals;
}

bool is_conditional(const std::string& values, const Rehearsal& rehearsal) {
  return values != "compute" && reads_of(rehearsal).decide();
}

}  // namespace spillway::tools
