#include "tools/spillway/report/analysis.h"

#include <algorithm>
#include <array>
#include <cstdio>
#include <functional>
#include <set>

#include "tools/spillway/report/address_ranges.h"
#include "tools/spillway/report/site.h"

namespace spillway::tools {
namespace {

using trace::Kind;
using trace::Outcome;
using trace::Record;
using trace::Term;

constexpr const char* kEvaluation = "evaluation";

class Analyst {
 public:
  explicit Analyst(const trace::Contents& contents) : contents_(contents) {}

  Analysis run() {
    for (const Record& record : contents_.records) take(record);
    judge_what_was_not_done_again();
    for (auto& [number, incident] : incidents_) {
      put_in_order(&incident.holders);
      count_outcome(incident);
      count_tries(incident);
      out_.incidents.push_back(std::move(incident));
    }
    return std::move(out_);
  }

 private:
  // A program may have had enough of trying, and end.
  void judge_what_was_not_done_again() {
    if (!contents_.closed) return;
    for (const uint64_t number : to_be_done_again_) incidents_[number].outcome = Outcome::kGiveUp;
  }

  // Of a step and of an evaluation the trace shows whether they were done again. A new plan alone does not
  // show it: a rank takes one before all ranks decide whether to go on.
  void must_be_done_again(const Incident& incident) {
    if (is_in_step_ || (step_ && incident.phase == kEvaluation)) to_be_done_again_.insert(incident.number);
  }

  // No step begins for it: its phase begins once more, or it allocates inside the one that it is in.
  void evaluation_goes_on() {
    std::erase_if(to_be_done_again_,
                  [&](uint64_t number) { return incidents_[number].phase == kEvaluation; });
  }

  void take(const Record& record) {
    switch (record.kind) {
      case Kind::kAllocate:
        if (!to_be_done_again_.empty() && phase_ == kEvaluation) evaluation_goes_on();
        if (!elsewhere_.empty()) comes_to_the_card(record);
        return;
      case Kind::kFreePending:
        if (record.value != 0) pending_[{record.device, record.address}] = {record.detail, record.bytes};
        return;
      case Kind::kFree:
        pending_.erase({record.device, record.address});
        if (!elsewhere_.empty()) comes_to_the_card(record);
        return;
      case Kind::kMove:
        return take_move(record);
      case Kind::kOom:
        return take_oom(record);
      case Kind::kOomContext:
        return take_context(record);
      case Kind::kOomEquation:
        return take_term(record);
      case Kind::kLadderStep:
        return take_try(record);
      case Kind::kRefusal:
        incident(record).refusals.push_back({name(record.detail), name(record.requested)});
        return;
      case Kind::kLadderOutcome:
        return take_outcome(record);
      case Kind::kOomSite:
        if (const std::string stack = name(record.detail); !stack.empty())
          incident(record).asker = site_of(stack);
        return;
      case Kind::kHolder:
        return add_share(record, &incident(record).holders);
      case Kind::kHeld:
        return take_held(record);
      case Kind::kProcess:
        incident(record).neighbours.push_back(
            {record.address, record.bytes, record.requested, name(record.detail)});
        return;
      case Kind::kCourse:
        incident(record).course.push_back({record.detail, record.address});
        return;
      case Kind::kPhase:
        phase_ = name(record.detail);
        if (phase_ == kEvaluation) evaluation_goes_on();
        return;
      case Kind::kStepBegin:
        step_ = out_.run.last_begun = mark(record);
        is_in_step_ = true;
        to_be_done_again_.clear();
        return;
      case Kind::kStepEnd:
        return take_step_end(record);
      case Kind::kOptimizerStep:
        out_.run.optimizer_steps = std::max(out_.run.optimizer_steps + 1, record.address);
        return;
      case Kind::kOomStep:
        incident(record).optimizer_steps = record.address;
        out_.run.optimizer_steps = std::max(out_.run.optimizer_steps, record.address);
        return;
      case Kind::kPlanChange:
        return take_plan_change(record);
      case Kind::kMemory:
        return take_memory(record);
      case Kind::kDriverFailure:
        ++out_.run.driver_failures[record.device];
        return;
      case Kind::kSlowdown:
        return take_slowdown(record);
      default:
        return;
    }
  }

  void take_slowdown(const Record& record) {
    StepSlowdown& slowest = out_.run.slowdowns[record.device];
    const StepSlowdown told = slowdown_of(record);
    const bool more_known = told.measured != 0 && slowest.measured == 0;
    const bool less_known = told.measured == 0 && slowest.measured != 0;
    if (more_known || (!less_known && told.most() > slowest.most())) slowest = told;
  }

  std::string name(uint64_t index) const { return name_of(contents_, index); }

  static StepMark mark(const Record& record) { return {record.address, record.bytes, record.requested}; }

  Incident& incident(const Record& record) {
    Incident& incident = incidents_[record.value];
    incident.number = record.value;
    return incident;
  }

  void take_oom(const Record& record) {
    Incident& it = incident(record);
    it.device = record.device;
    it.stream = record.stream;
    it.requested_bytes = record.requested;
    it.rounded_bytes = record.bytes;
    it.short_bytes = record.address;
    it.clock_ns = record.detail;
    if (it.phase.empty()) it.phase = phase_;  // of any thread; kOomContext knows better
    it.step = step_;
    it.pending = pending_on(record.device);
  }

  void comes_to_the_card(const Record& record) {
    elsewhere_[record.device].remove(record.address, record.address + record.bytes);
  }

  void take_move(const Record& record) {
    constexpr uint64_t kOnTheDevice = 0;  // the number of the allocator's tier
    if (record.value != 0) return;        // it failed
    if (record.requested == kOnTheDevice) return comes_to_the_card(record);
    elsewhere_[record.device].add(record.address, record.address + record.bytes);
  }

  // What lies in another tier takes nothing of the card.
  uint64_t on_the_card(uint8_t device, uint64_t address, uint64_t bytes) const {
    const auto moved = elsewhere_.find(device);
    return moved == elsewhere_.end() ? bytes : bytes - moved->second.bytes_within(address, address + bytes);
  }

  std::vector<PendingFrees> pending_on(uint8_t device) const {
    std::map<uint64_t, PendingFrees> by_stream;
    for (const auto& [where, wait] : pending_) {
      if (where.first != device) continue;
      const uint64_t bytes = on_the_card(device, where.second, wait.bytes);
      if (bytes == 0) continue;
      PendingFrees& frees = by_stream[wait.stream];
      frees.stream = wait.stream;
      frees.bytes += bytes;
      ++frees.blocks;
    }
    std::vector<PendingFrees> pending;
    pending.reserve(by_stream.size());
    for (const auto& [stream, frees] : by_stream) pending.push_back(frees);
    std::ranges::stable_sort(pending, std::ranges::greater(), &PendingFrees::bytes);
    return pending;
  }

  void take_context(const Record& record) {
    Incident& it = incident(record);
    it.pool = record.address;
    it.attempt = record.bytes;
    it.library = name(record.detail);
    if (record.requested != 0) it.phase = name(record.requested);
  }

  void take_term(const Record& record) {
    const auto term = static_cast<Term>(record.detail);
    incident(record).terms[term] = record.bytes;
    // Of a call of the driver the card comes first, and what is live is not Spillway's.
    if (term != Term::kLive || incident(record).term(Term::kDevice)) return;
    DeviceMemory& memory = out_.run.memory[record.device];  // samples are rare: a failure may be the peak
    memory.peak_live_bytes = std::max(memory.peak_live_bytes, record.bytes);
  }

  static SiteName site_of(const std::string& stack) {
    const Place place = place_of(stack);
    return {where_of(place), caller_of(place)};
  }

  // Several stacks may lead to one place.
  void add_share(const Record& record, std::vector<SiteShare>* holders) const {
    const std::string stack = name(record.detail);
    SiteName site = stack.empty() ? SiteName{kFurtherPlaces, ""} : site_of(stack);
    const auto same = std::ranges::find(*holders, site, &SiteShare::site);
    SiteShare& share = same == holders->end() ? holders->emplace_back(SiteShare{std::move(site)}) : *same;
    share.bytes += record.bytes;
    share.blocks += record.requested;
  }

  // A trace may end, or begin, between the places of one time: then their sum, or some of them, are missing.
  void take_held(const Record& record) {
    HeldAtTime& telling = telling_[record.device];
    if (telling.clock_ns != record.address) telling = {};
    telling.clock_ns = record.address;
    if (record.flags == 0) return add_share(record, &telling.holders);
    telling.in_use_bytes = record.bytes;
    put_in_order(&telling.holders);
    out_.last_told[record.device] = telling;
  }

  static void put_in_order(std::vector<SiteShare>* holders) {
    std::ranges::stable_sort(*holders, std::ranges::greater(), &SiteShare::bytes);
  }

  void take_try(const Record& record) {
    LadderTry tried{name(record.detail), std::nullopt, record.requested, record.bytes, record.address};
    if (tried.strategy.empty()) tried.strategy = "unnamed";
    if (record.flags != 0) tried.guarantee = static_cast<uint8_t>(record.flags - 1);
    incident(record).tries.push_back(std::move(tried));
  }

  void take_outcome(const Record& record) {
    Incident& it = incident(record);
    it.outcome = static_cast<Outcome>(record.detail);
    if (it.outcome == Outcome::kUnwind) must_be_done_again(it);
    it.gained_bytes = record.bytes;
    it.microseconds = record.address;
    if (it.requested_bytes == 0) it.requested_bytes = record.requested;
  }

  void take_step_end(const Record& record) {
    is_in_step_ = false;
    to_be_done_again_.clear();  // a program may do it again inside one mark
    out_.run.last_ended = mark(record);
    ++out_.run.steps_ended;
    out_.run.tokens += record.detail;
  }

  void take_plan_change(const Record& record) {
    out_.run.plan_changes.push_back(
        {record.address, record.bytes, record.requested, record.value, name(record.detail)});
  }

  void take_memory(const Record& record) {
    DeviceMemory& memory = out_.run.memory[record.device];
    memory.peak_live_bytes = std::max(memory.peak_live_bytes, record.address);
    memory.peak_reserved_bytes = std::max({memory.peak_reserved_bytes, record.bytes, record.stream});
    memory.limit_bytes = record.requested;
  }

  void count_outcome(const Incident& incident) {
    Run& run = out_.run;
    if (!incident.outcome) {
      ++run.undecided;
    } else if (*incident.outcome == Outcome::kGranted) {
      ++run.granted;
    } else if (*incident.outcome == Outcome::kUnwind) {
      ++run.unwound;
    } else {
      ++run.gave_up;
    }
  }

  // Useful: it gave bytes, or it is the plan move for which the step was unwound.
  void count_tries(const Incident& incident) {
    for (const LadderTry& tried : incident.tries) {
      StrategyTotal& total = out_.run.strategies[tried.strategy];
      ++total.tried;
      total.useful += tried.measured_bytes > 0 || incident.chose(tried) ? 1 : 0;
      total.bytes += tried.measured_bytes;
      total.microseconds += tried.microseconds;
    }
  }

  const trace::Contents& contents_;
  Analysis out_;
  std::map<uint64_t, Incident> incidents_;
  std::map<uint8_t, HeldAtTime> telling_;
  std::set<uint64_t> to_be_done_again_;  // incidents, until it is seen that they were
  bool is_in_step_ = false;
  std::string phase_;
  std::optional<StepMark> step_;
  struct Wait {
    uint64_t stream = 0, bytes = 0;
  };
  std::map<std::pair<uint8_t, uint64_t>, Wait> pending_;  // by device and address
  std::map<uint8_t, AddressRanges> elsewhere_;            // by device: what lies in another tier
};

}  // namespace

Analysis analyse(const trace::Contents& contents) {
  return Analyst(contents).run();
}

std::optional<uint64_t> Incident::term(Term term) const {
  const auto found = terms.find(term);
  return found == terms.end() ? std::nullopt : std::optional(found->second);
}

bool Incident::chose(const LadderTry& tried) const {
  return outcome == Outcome::kUnwind && &tried == &tries.back();
}

std::optional<int64_t> Incident::residual_bytes() const {
  const auto limit = term(Term::kLimit);
  if (!limit) return std::nullopt;
  uint64_t rest = *limit;  // unsigned: whatever a damaged trace holds, the difference is defined
  for (const Term summand : kSummands) {
    const auto bytes = term(summand);
    if (!bytes && !is_optional(summand)) return std::nullopt;
    rest -= bytes.value_or(0);
  }
  return static_cast<int64_t>(rest);
}

const Incident* Analysis::foremost() const {
  const Incident* best = nullptr;
  const auto rank = [](const Incident& incident) {
    if (!incident.outcome) return 0;
    return *incident.outcome == Outcome::kGiveUp ? 2 : *incident.outcome == Outcome::kUnwind ? 1 : 0;
  };
  for (const Incident& incident : incidents) {
    if (best == nullptr || rank(incident) >= rank(*best)) best = &incident;
  }
  return best;
}

const Incident* Analysis::find(uint64_t number) const {
  for (const Incident& incident : incidents) {
    if (incident.number == number) return &incident;
  }
  return nullptr;
}

StepSlowdown slowdown_of(const trace::Record& record) {
  constexpr double kThousandths = 1000;
  return {static_cast<double>(record.address) / kThousandths,
          static_cast<double>(record.requested) / kThousandths};
}

std::string slowdown_text(const StepSlowdown& slowdown) {
  const auto times = [](double factor) {
    std::array<char, 32> text{};
    std::snprintf(text.data(), text.size(), "%.1f times", factor);
    return std::string(text.data());
  };
  if (slowdown.measured == 0)
    return times(slowdown.predicted) + " as long, as predicted (not measured: no step was seen without it)";
  return times(slowdown.measured) + " as long (" + times(slowdown.predicted) + " predicted)";
}

std::string name_of(const trace::Contents& contents, uint64_t index) {
  const auto found = contents.names.find(index);
  return found == contents.names.end() ? "" : found->second;
}

const char* outcome_name(Outcome outcome) {
  switch (outcome) {
    case Outcome::kGranted:
      return "granted";
    case Outcome::kUnwind:
      return "unwind";
    case Outcome::kGiveUp:
      return "gave up";
  }
  return "unknown";
}

const char* outcome_text(Outcome outcome) {
  switch (outcome) {
    case Outcome::kGranted:
      return "rescued";
    case Outcome::kUnwind:
      return "done again with another plan";
    case Outcome::kGiveUp:
      return "not rescued";
  }
  return "unknown";
}

const char* guarantee_name(uint8_t guarantee) {
  static constexpr const char* kNames[] = {"bit exact", "numerically equal", "statistics change"};
  return guarantee < std::size(kNames) ? kNames[guarantee] : "unknown";
}

const char* term_name(Term term) {
  static constexpr const char* kNames[] = {
      "limit",   "live",         "rounding",     "stranded",       "cached",         "pending",
      "pools",   "context",      "others",       "free",           "largest extent", "device",
      "spilled", "spilled peer", "spilled nvme", "host available", "reserve",        "device free"};
  const auto index = static_cast<uint64_t>(term);
  return index < std::size(kNames) ? kNames[index] : "unknown";
}

}  // namespace spillway::tools
