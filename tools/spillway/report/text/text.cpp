// The incident in full: verdict, request, equation, ladder.

#include "tools/spillway/report/render.h"
#include "tools/spillway/report/text/kinds_text.h"
#include "tools/spillway/report/text/pools_text.h"
#include "tools/spillway/report/text/table.h"
#include "tools/spillway/report/verdict.h"
#include "tools/spillway/snapshot/report.h"
#include "tools/spillway/units.h"

namespace spillway::tools {
namespace {

using trace::Term;

std::string verdict_text(const ReportInput& input) {
  const Reason reason = reason_of(input);
  return "Verdict: " + reason.cause + ": " + reason.text + ".\n";
}

std::string place_text(const Incident& incident) {
  std::string text =
      "device " + std::to_string(incident.device) + ", stream " + address_text(incident.stream);
  if (incident.pool)
    text += *incident.pool == 0 ? ", default pool" : ", pool " + std::to_string(*incident.pool);
  if (!incident.library.empty()) text += ", asked by " + caller_text(incident.library);
  return text;
}

std::string moment_text(const Incident& incident) {
  std::string text = "step unknown";
  if (incident.step) {
    text = "step " + std::to_string(incident.step->step);
    if (incident.step->attempt != 0) text += ", attempt " + std::to_string(incident.step->attempt);
  } else if (incident.optimizer_steps > 0) {
    text = "after optimizer step " + std::to_string(incident.optimizer_steps) + " began";
  }
  return text + ", phase " + (incident.phase.empty() ? "unknown" : incident.phase);
}

std::string request_text(const Incident& incident) {
  std::string text = "Incident " + std::to_string(incident.number) + "\n";
  text += "  asked     " + exact_size_text(incident.requested_bytes) + "\n";
  text += "  rounded   " + exact_size_text(incident.rounded_bytes) + "\n";
  text += "  short     " + exact_size_text(incident.short_bytes) + "\n";
  text += "  where     " + place_text(incident) + "\n";
  text += "  when      " + moment_text(incident) + "\n";
  if (incident.asker) text += "  by        " + site_text(*incident.asker) + "\n";
  return text;
}

// Of another library's call PyTorch's allocator is known as far as it tells, the rest as one sum.
const char* term_meaning_of_a_call(Term term) {
  switch (term) {
    case Term::kLive:
      return "in use in PyTorch's allocator";
    case Term::kRounding:
      return "given beyond what was asked for";
    case Term::kCached:
      return "idle in PyTorch's allocator";
    case Term::kPending:
      return "freed, but other streams may still use it";
    case Term::kPools:
      return "idle in PyTorch's private pools, such as those of CUDA graphs";
    case Term::kOthers:
      return "other processes that Spillway knows";
    case Term::kContext:
      return "CUDA context, other libraries, other processes";
    case Term::kReserve:
      return "free, and left to other libraries (--reserve)";
    case Term::kFree:
      return "free on the card, or below the limit";
    default:
      return nullptr;
  }
}

// Not each PyTorch tells these.
bool is_seldom(Term term) {
  return term == Term::kRounding || term == Term::kPending || term == Term::kPools || term == Term::kOthers;
}

std::string equation_text(const Incident& incident) {
  const auto limit = incident.term(Term::kLimit);
  if (!limit) return "Where the memory was: the trace does not say\n";
  Table table({Align::kLeft, Align::kRight, Align::kLeft});
  table.add({"limit", exact_size_text(*limit), ""});
  const char* sign = "= ";
  for (const Term term : kSummands) {
    const auto bytes = incident.term(term);
    const char* meaning = term_meaning(incident, term);
    if (meaning == nullptr || (!bytes && is_optional(term)) ||
        (is_driver_call(incident) && bytes == 0 && is_seldom(term)))
      continue;
    table.add({std::string(sign) + term_name(term), bytes ? exact_size_text(*bytes) : "?", meaning});
    sign = "+ ";
  }
  const auto residual = incident.residual_bytes();
  table.add({"the rest", residual ? std::to_string(*residual) + " B" : "?",
             residual ? (*residual == 0 ? "the lines above add up to the limit"
                                        : "the lines above do not add up to the limit")
                      : "a line is missing"});
  std::string text = "Where the memory was\n" + table.text("  ");
  if (const auto spilled = incident.term(Term::kSpilled)) {
    text += "  in use beside that, moved off the card: " + exact_size_text(*spilled);
    if (const auto peer = incident.term(Term::kSpilledPeer))
      text += ", of these to another device " + exact_size_text(*peer);
    if (const auto nvme = incident.term(Term::kSpilledNvme))
      text += ", of these to a file " + exact_size_text(*nvme);
    text += "\n";
  }
  if (const auto extent = incident.term(Term::kLargestExtent)) {
    text += "  largest usable extent: " + exact_size_text(*extent) + "\n";
  }
  constexpr size_t kMostStreams = 4;
  for (size_t i = 0; i < std::min(kMostStreams, incident.pending.size()); ++i) {
    const PendingFrees& frees = incident.pending[i];
    text += "  pending: " + size_text(frees.bytes) + " in " + count_text(frees.blocks, "block", "blocks") +
            (frees.blocks == 1 ? " waits" : " wait") + " for work of stream " + address_text(frees.stream) +
            "\n";
  }
  return text;
}

std::string neighbours_text(const Incident& incident) {
  if (incident.neighbours.empty()) return "";
  Table table({Align::kRight, Align::kRight, Align::kRight, Align::kLeft});
  table.add({"process", "held", "of that cached", "program"});
  for (const Neighbour& neighbour : incident.neighbours)
    table.add({std::to_string(neighbour.process), size_text(neighbour.held_bytes),
               size_text(neighbour.cached_bytes), neighbour.program});
  return "\nOther processes on the device\n" + table.text("  ");
}

std::string ladder_text(const Incident& incident) {
  std::string text = "What was tried\n";
  if (incident.tries.empty()) {
    text += "  nothing\n";
  } else {
    Table table({Align::kLeft, Align::kLeft, Align::kRight, Align::kRight, Align::kRight});
    table.add({"strategy", "guarantee", "expected", "gained", "time"});
    for (const LadderTry& tried : incident.tries) {
      table.add({tried.strategy, tried.guarantee ? guarantee_name(*tried.guarantee) : "unknown",
                 size_text(tried.offered_bytes),
                 incident.chose(tried) ? "plan move" : size_text(tried.measured_bytes),
                 duration_text(tried.microseconds)});
    }
    text += table.text("  ");
  }
  for (const Refusal& refusal : incident.refusals)
    text += "  not " + refusal.strategy + ": " + refusal.why + "\n";
  if (!incident.outcome) return text + "  outcome: none; the trace ends here\n";
  return text + "  outcome: " + outcome_text(*incident.outcome) + ", " + size_text(incident.gained_bytes) +
         " gained in " + duration_text(incident.microseconds) + "\n";
}

}  // namespace

namespace {

// Where memory in use could have gone, and why it did not.
std::string refused_moves(const Incident& incident) {
  std::string text;
  for (const Refusal& refusal : incident.refusals)
    if (refusal.strategy.starts_with("spill_to_"))
      text += "; " + refusal.strategy + " could not help: " + refusal.why;
  return text;
}

std::string reason_text(const Incident& incident, const Verdict& verdict) {
  const bool of_size = verdict.cause == Cause::kCapacity || verdict.cause == Cause::kFragmentation;
  return verdict.text + (of_size ? refused_moves(incident) : "");
}

// What only the history of the allocations tells of the incident's moment.
std::string history_text(const ReportInput& input) {
  if (input.findings == nullptr) return "";
  return kinds_text(input.findings->kinds) + pools_text(input.findings->pools);
}

}  // namespace

Reason reason_of(const ReportInput& input) {
  if (input.findings == nullptr) {
    const Verdict verdict = judge(*input.incident);
    return {cause_name(verdict.cause), reason_text(*input.incident, verdict)};
  }
  const Cause cause = input.findings->verdict.cause;
  const bool by_history = cause == Cause::kLeak || cause == Cause::kGrowth;
  const Verdict verdict = by_history ? input.findings->verdict : judge(*input.incident);
  return {cause_name(verdict.cause), reason_text(*input.incident, verdict) + input.findings->remark};
}

std::string rescue_text(const Analysis& analysis) {
  const Run& run = analysis.run;
  const uint64_t met = analysis.incidents.size();
  const std::string failures = count_text(met, "allocation failure", "allocation failures");
  if (run.gave_up > 0) return "NOT RESCUED: " + std::to_string(run.gave_up) + " of " + failures + ".";
  if (run.undecided > 0) return "";
  std::string text = "RESCUED: " + std::string(met == 1 ? "the only allocation failure" : "all " + failures);
  if (run.unwound > 0)
    text += (run.unwound == met ? ", " : ", " + std::to_string(run.unwound) + " of them ") +
            std::string("by doing a step again with another plan");
  return text + "; the program went on.";
}

const char* term_meaning(const Incident& incident, Term term) {
  if (is_driver_call(incident)) return term_meaning_of_a_call(term);
  switch (term) {
    case Term::kLive:
      return "in use by the program";
    case Term::kRounding:
      return "added to the program's requests";
    case Term::kStranded:
      return "free, but no request can use it";
    case Term::kCached:
      return "free inside what Spillway holds";
    case Term::kPending:
      return "freed, but queued work still uses it";
    case Term::kPools:
      return "in other memory pools";
    case Term::kContext:
      return "CUDA context, other libraries, and processes that are not seen";
    case Term::kOthers:
      return "other processes";
    case Term::kReserve:
      return "free, and left to other libraries (--reserve)";
    case Term::kFree:
      return "below the limit, not taken";
    default:
      return nullptr;
  }
}

std::string report_text(const ReportInput& input) {
  std::string text = "Spillway report: " + input.path + "\n" + cut_off_text(input);
  if (input.incident != nullptr) {
    const Incident& incident = *input.incident;
    // What became of the program comes before why memory was short.
    const std::string rescue = rescue_text(input.analysis);
    text += (rescue.empty() ? "" : rescue + "\n") + verdict_text(input) + "\n" + request_text(incident) +
            "\n" + equation_text(incident) + neighbours_text(incident) + holders_text(input) +
            history_text(input) + "\n" + ladder_text(incident);
    if (input.fitted != nullptr) text += counterfactuals_text(*input.fitted);
    if (input.findings != nullptr) text += peak_text(*input.findings);
  } else {
    text += no_failure_text(input.contents) + "\n";
  }
  return text + at_last_text(input) + "\n" + run_text(input) + "\n" + events_text(input) +
         completeness_text(input);
}

}  // namespace spillway::tools
