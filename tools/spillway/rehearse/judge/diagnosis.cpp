#include "tools/spillway/rehearse/judge/diagnosis.h"

#include <cstdio>
#include <exception>
#include <memory>

#include "strategies/framework/segment_size.h"
#include "tools/spillway/rehearse/report/history.h"

namespace spillway::tools {
namespace {

uint64_t capacity_of(const FailureOf& found) {
  const auto device = found.process->devices.find(found.failure->device);
  if (device == found.process->devices.end()) return 0;
  const auto& card = device->second.card;
  return card ? card->capacity : 0;
}

// Whether the history knows what PyTorch's totals do not tell.
bool history_decides(Cause cause) {
  return cause == Cause::kLeak || cause == Cause::kGrowth || cause == Cause::kPoolIsolation ||
         cause == Cause::kPendingFrees;
}

std::string limit_text(const OwnLimit& limit, uint64_t free) {
  if (limit.bytes == 0)
    return size_text(free) +
           " of the card are free: the process has a limit of its own in bytes, such as SPILLWAY_LIMIT";
  const std::string of = "the process has a limit of its own: " + size_text(limit.bytes) + " of the card's " +
                         size_text(limit.capacity);
  return limit.is_fraction ? of + ", by " + fraction_call(limit.fraction()) + "; " + size_text(free) +
                                 " of the card are free"
                           : of + ", by SPILLWAY_LIMIT or spillway run --limit";
}

}  // namespace

ShownDevice shown_of(const Rehearsal& rehearsal) {
  if (const FailureOf found = deciding_failure(rehearsal); found.failure != nullptr)
    return {found.process, found.failure->device};
  ShownDevice shown;
  uint64_t most = 0;
  for (const Observation& process : rehearsal.processes)
    for (const auto& [ordinal, device] : process.devices)
      if (const uint64_t peak = need_of(device).peak; shown.process == nullptr || peak > most) {
        shown = {&process, ordinal};
        most = peak;
      }
  return shown;
}

MemoryHistory history_of(const RunOptions& options, const Rehearsal& rehearsal) {
  const ShownDevice shown = shown_of(rehearsal);
  if (shown.process == nullptr || shown.process->history.empty()) return {};
  MemoryHistory history =
      read_rehearsed_history(shown.process->history, shown.device).value_or(MemoryHistory());
  history.of_spillway = options.allocator == "spillway";
  return history;
}

void look_into_history(const RunOptions& options, Rehearsal* rehearsal) {
  const uint64_t capacity = largest_need(*rehearsal).capacity;
  try {
    if (auto found =
            look_into(history_of(options, *rehearsal), capacity > 0 ? std::optional(capacity) : std::nullopt))
      rehearsal->findings = std::make_shared<const HistoryFindings>(*std::move(found));
  } catch (const std::bad_alloc&) {
    rehearsal->findings = nullptr;  // the report has PyTorch's figures without it
  }
}

std::optional<OwnLimit> own_limit_of(const FailureOf& found) {
  const Failure& failure = *found.failure;
  const uint64_t capacity = capacity_of(found);
  if (capacity == 0) return std::nullopt;
  const bool is_below = failure.limit > 0 && failure.limit < capacity;
  const bool card_has_it = failure.device_free >= native_segment_bytes(failure.requested);
  if (card_has_it) {
    const bool is_fraction = is_below && failure.reserved + failure.device_free > failure.limit;
    return OwnLimit{is_fraction, is_below ? failure.limit : 0, capacity};
  }
  // The process is shown a smaller card, as spillway run --limit does.
  if (is_below && failure.reserved + failure.device_free <= failure.limit)
    return OwnLimit{false, failure.limit, capacity};
  return std::nullopt;
}

std::string fraction_call(double fraction) {
  char text[64];
  std::snprintf(text, sizeof text, "torch.cuda.set_per_process_memory_fraction(%.3g)", fraction);
  return text;
}

std::optional<Diagnosis> diagnose(const Rehearsal& rehearsal) {
  const FailureOf failed = deciding_failure(rehearsal);
  if (failed.failure == nullptr) return std::nullopt;
  Diagnosis diagnosis;
  diagnosis.own_limit = own_limit_of(failed);
  const HistoryFindings* found = rehearsal.findings.get();
  const bool is_told = found != nullptr && found->failure;
  if (is_told && history_decides(found->verdict.cause)) {
    diagnosis.cause = found->verdict.cause;
    diagnosis.text = found->verdict.text;
    if (found->grows) diagnosis.grows = found->holders[*found->grows];
  } else if (diagnosis.own_limit) {
    diagnosis.cause = Cause::kLimit;
    diagnosis.text = limit_text(*diagnosis.own_limit, failed.failure->device_free);
  } else {
    const Verdict verdict = verdict_of(failed);
    diagnosis.cause = verdict.cause;
    diagnosis.text = verdict.text;
  }
  if (is_told) diagnosis.text += found->remark;
  return diagnosis;
}

std::string line_of(const Diagnosis& diagnosis) {
  return (diagnosis.is_by_history() ? cause_name(diagnosis.cause) + std::string(": ") : "") + diagnosis.text;
}

std::string advice_of(const Diagnosis& diagnosis) {
  if (diagnosis.cause == Cause::kLeak)
    return "a larger card, a smaller batch, gradient checkpointing and memory of the host only delay a leak: "
           "find what keeps these blocks, such as a list of losses with their graphs (loss.item() keeps "
           "none)";
  if (diagnosis.cause == Cause::kGrowth)
    return "it grows for as long as the program runs: what fits is so for a run of this length";
  if (!diagnosis.own_limit) return "";
  return diagnosis.own_limit->is_fraction
             ? "raise the fraction: the card is not what is too small"
             : "raise the limit: no card is large enough for a limit in bytes that is too small";
}

}  // namespace spillway::tools
