// What a trace tells, as data: the incidents with their equations and ladders, and the run as a whole. The
// text and the JSON report print this and decide nothing themselves.
//
// Thread-safety: plain values. Errors: none; what a trace does not hold stays empty and is shown as unknown.
#pragma once
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "trace/reader.h"

namespace spillway::tools {

struct LadderTry {
  std::string strategy;
  std::optional<uint8_t> guarantee;  // a spillway::Guarantee
  uint64_t offered_bytes = 0, measured_bytes = 0, microseconds = 0;
};

struct Refusal {
  std::string strategy, why;
};

// Where in the program: "model.py:47 forward", and the program's own line that led there, "" if it is the
// same.
struct SiteName {
  std::string where, caller;
  auto operator<=>(const SiteName&) const = default;
};

// What is left of the list of places that a trace has.
inline constexpr const char* kFurtherPlaces = "further places";

// What a place held, estimated where only a sample of the blocks has a place.
struct SiteShare {
  SiteName site;
  uint64_t bytes = 0, blocks = 0;
};

// What the places of a device held at one time between failures.
struct HeldAtTime {
  uint64_t clock_ns = 0;
  uint64_t in_use_bytes = 0;       // by all, with what has no place
  std::vector<SiteShare> holders;  // largest first
};

// Another process on the device, as the ledger showed it.
struct Neighbour {
  uint64_t process = 0, held_bytes = 0, cached_bytes = 0;
  std::string program;
};

// Blocks that were freed and wait for work of another stream; of them what is on the card.
struct PendingFrees {
  uint64_t stream = 0;  // the first that they wait for
  uint64_t bytes = 0, blocks = 0;
};

// What PyTorch's own allocator had in use at a time before the incident.
struct CoursePoint {
  uint64_t clock_ns = 0, used_bytes = 0;
};

struct StepMark {
  uint64_t step = 0, attempt = 0, plan_hash = 0;
};

// One allocation that could not be served at once.
struct Incident {
  uint64_t number = 0;
  uint8_t device = 0;
  uint64_t stream = 0;
  uint64_t requested_bytes = 0, rounded_bytes = 0, short_bytes = 0, clock_ns = 0;
  std::optional<uint64_t> pool, attempt;
  std::string library, phase;
  std::optional<StepMark> step;
  uint64_t optimizer_steps = 0;  // that had begun; 0: none, or the trace does not say
  std::map<trace::Term, uint64_t> terms;
  std::vector<LadderTry> tries;
  std::vector<Refusal> refusals;          // strategies that could have and would not
  std::optional<SiteName> asker;          // nothing: not known
  std::vector<SiteShare> holders;         // where it was not rescued in place; largest first
  std::vector<Neighbour> neighbours;      // largest first
  std::vector<CoursePoint> course;        // by time
  std::vector<PendingFrees> pending;      // where the trace says the stream; most bytes first
  std::optional<trace::Outcome> outcome;  // none: the trace ends before it
  uint64_t gained_bytes = 0, microseconds = 0;

  std::optional<uint64_t> term(trace::Term term) const;
  // `tried`, of this incident, is the plan move for which the step was unwound: it ends a ladder.
  bool chose(const LadderTry& tried) const;
  // limit less the sum of the other terms; nothing where a term is missing.
  std::optional<int64_t> residual_bytes() const;
};

struct PlanChange {
  uint64_t step = 0, old_plan = 0, new_plan = 0, incident = 0;
  std::string reason;
};

struct DeviceMemory {
  uint64_t peak_live_bytes = 0, peak_reserved_bytes = 0, limit_bytes = 0;
};

// How many times as long steps took with memory in other tiers as without.
struct StepSlowdown {
  double predicted = 0;
  double measured = 0;  // 0: no step was seen without
  double most() const { return measured != 0 ? measured : predicted; }
};

struct StrategyTotal {
  uint64_t tried = 0, useful = 0, bytes = 0, microseconds = 0;
};

struct Run {
  uint64_t granted = 0, unwound = 0, gave_up = 0, undecided = 0;  // incidents by outcome
  std::vector<PlanChange> plan_changes;
  std::map<uint8_t, DeviceMemory> memory;           // by device
  std::map<std::string, StrategyTotal> strategies;  // by name
  std::optional<StepMark> last_begun, last_ended;
  uint64_t steps_ended = 0, tokens = 0;
  uint64_t optimizer_steps = 0;                 // that have begun, as far as the trace says
  std::map<uint8_t, uint64_t> driver_failures;  // calls that failed, by device
  std::map<uint8_t, StepSlowdown> slowdowns;    // the slowest that was told, by device
};

// What a process had of a device when its trace ends.
struct LastMemory {
  int device = 0;
  uint64_t in_use_bytes = 0, held_bytes = 0;
  uint64_t older_bytes = 0;  // in use, and allocated before what is left of the trace
};

struct Analysis {
  std::vector<Incident> incidents;          // by number
  std::map<uint8_t, HeldAtTime> last_told;  // by device: of the last time that the trace tells whole
  Run run;

  // The one to look at first: the last that gave up, else the last that unwound, else the last; null if there
  // is none.
  const Incident* foremost() const;
  const Incident* find(uint64_t number) const;
};

Analysis analyse(const trace::Contents& contents);

StepSlowdown slowdown_of(const trace::Record& record);    // of a kSlowdown
std::string slowdown_text(const StepSlowdown& slowdown);  // "3.8 times as long (1.3 times predicted)"

// The text behind an index, or "" where it has none.
std::string name_of(const trace::Contents& contents, uint64_t index);

const char* outcome_name(trace::Outcome outcome);  // of the data
const char* outcome_text(trace::Outcome outcome);  // for people
const char* guarantee_name(uint8_t guarantee);
const char* term_name(trace::Term term);

// The terms of the sum, in the order of the equation. Only traces of processes with a reserve have that.
inline constexpr trace::Term kSummands[] = {
    trace::Term::kLive,    trace::Term::kRounding, trace::Term::kStranded, trace::Term::kCached,
    trace::Term::kPending, trace::Term::kPools,    trace::Term::kContext,  trace::Term::kOthers,
    trace::Term::kReserve, trace::Term::kFree};
constexpr bool is_optional(trace::Term summand) {
  return summand == trace::Term::kReserve;
}

}  // namespace spillway::tools
