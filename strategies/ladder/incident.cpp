#include "strategies/ladder/incident.h"

#include <algorithm>

#include "allocator/accounting/record.h"
#include "strategies/framework/framework_course.h"
#include "strategies/ladder/driver_equation.h"
#include "strategies/processes/neighbours.h"
#include "strategies/sites/holders_told.h"

namespace spillway {
namespace {
constexpr unsigned kMostUselessRuns = 2;
constexpr size_t kMostHolders = 256;
// They do twenty times a second, and what they hold may be the cause.
constexpr auto kMembersShowThemselves = std::chrono::milliseconds(100);
}  // namespace

Ladder::Incident::Incident(Allocator& allocator, PendingRequest& request, const LadderOptions& options)
    : request(request),
      event(request.event),
      allocator_(allocator),
      options_(options),
      start_(std::chrono::steady_clock::now()) {}

void Ladder::Incident::record(trace::Kind kind, uint64_t address, uint64_t bytes, uint64_t requested,
                              uint64_t detail, uint8_t flags) {
  trace::Record record;
  record.kind = kind;
  record.address = address;
  record.bytes = bytes;
  record.requested = requested;
  record.stream = static_cast<uint64_t>(event.stream);
  record.value = static_cast<uint32_t>(event.incident);
  record.detail = detail;
  record.flags = flags;
  write_record(allocator_, event.device, record);
}

void Ladder::Incident::open(uint64_t optimizer_steps) {
  trace::Trace* trace = allocator_.trace();
  if (trace == nullptr) return;
  const auto now = start_.time_since_epoch();
  record(trace::Kind::kOom, event.short_bytes, event.rounded_bytes, event.requested_bytes,
         static_cast<uint64_t>(std::chrono::duration_cast<std::chrono::nanoseconds>(now).count()));
  record(trace::Kind::kOomContext, event.pool, event.attempt, 0,
         event.library[0] != '\0' ? trace->intern(event.library) : 0);
  if (optimizer_steps > 0) record(trace::Kind::kOomStep, optimizer_steps, 0, 0, 0);
  record_equation();
  // As it is now: what they give back on the way is theirs no more.
  if (outside_ && outside_->context + outside_->others >= event.short_bytes) record_neighbours();
}

void Ladder::Incident::record_term(trace::Term which, uint64_t bytes) {
  record(trace::Kind::kOomEquation, 0, bytes, 0, static_cast<uint64_t>(which));
  if (which == trace::Term::kContext) outside_ = {bytes, outside_ ? outside_->others : 0};
  if (which == trace::Term::kOthers) outside_ = {outside_ ? outside_->context : 0, bytes};
}

void Ladder::Incident::record_equation() {
  if (event.source == Source::kDriverCaller) {
    for (const auto& [term, bytes] : driver_equation(allocator_, event)) record_term(term, bytes);
    return;
  }
  Memory memory;
  if (allocator_.memory(event.device, &memory) != Status::kOk) return;
  using trace::Term;
  const auto term = [this](Term which, uint64_t bytes) { record_term(which, bytes); };
  term(Term::kLimit, memory.limit);
  term(Term::kLive, memory.live);
  term(Term::kRounding, memory.rounding);
  term(Term::kStranded, memory.stranded);
  term(Term::kCached, memory.cached);
  term(Term::kPending, memory.pending);
  term(Term::kPools, memory.pools);
  term(Term::kContext, memory.context);
  term(Term::kOthers, memory.others);
  if (memory.reserve != 0) term(Term::kReserve, memory.reserve);
  term(Term::kFree, memory.free);
  term(Term::kLargestExtent, event.largest_extent_bytes);
  term(Term::kDevice, memory.device);
  if (memory.spilled != 0) term(Term::kSpilled, memory.spilled);
  if (memory.spilled_peer != 0) term(Term::kSpilledPeer, memory.spilled_peer);
  if (memory.spilled_nvme != 0) term(Term::kSpilledNvme, memory.spilled_nvme);
}

bool Ladder::Incident::may_step() const {
  const auto now = std::chrono::steady_clock::now();
  return steps_ < options_.most_steps && now - start_ < options_.most_time && now < event.deadline;
}

void Ladder::Incident::step(Entry& entry, const Offer& offer, const Relief& relief, uint64_t us) {
  ++steps_;
  gained_ += relief.bytes;
  trace::Trace* trace = allocator_.trace();
  if (trace != nullptr)
    record(trace::Kind::kLadderStep, us, relief.bytes, offer.bytes, trace->intern(entry.name),
           static_cast<uint8_t>(1 + static_cast<unsigned>(entry.info.guarantee)));
  if (!story.empty()) story += ", ";
  story += entry.name;
  story += (entry.info.needs & kNeedsUnwinding) != 0
               ? std::string(" chosen")
               : " " + std::to_string(relief.bytes >> 20) + " MiB in " + std::to_string(us) + " us";
}

void Ladder::Incident::close(LadderOutcome outcome) {
  if (outcome != LadderOutcome::kGranted) {
    record_refusals();
    record_holders();
    record_course();
    if (!knows_neighbours_) record_neighbours(kMembersShowThemselves);
  }
  record(trace::Kind::kLadderOutcome, microseconds_since(start_), gained_, event.requested_bytes,
         static_cast<uint64_t>(outcome));
}

void Ladder::Incident::record_refusals() {
  trace::Trace* trace = allocator_.trace();
  if (story.empty() && !refusals_.empty()) story = "nothing";
  for (const auto& [strategy, why] : refusals_) {
    if (trace != nullptr) record(trace::Kind::kRefusal, 0, 0, trace->intern(why), trace->intern(strategy));
    story.append("; not ").append(strategy).append(": ").append(why);
  }
}

// As they are now: the exception that follows frees much.
void Ladder::Incident::record_holders() {
  if (allocator_.trace() == nullptr) return;
  for (const SiteHolding& holder : largest_holders(allocator_, event.device, kMostHolders))
    record(trace::Kind::kHolder, holder.oldest_order, holder.bytes, holder.blocks, holder.site);
}

// Of a request of LibTorch's own allocator, what it had in use until then.
void Ladder::Incident::record_course() {
  if (!event.inside_framework || allocator_.trace() == nullptr) return;
  for (const FrameworkSample& sample : framework_course(static_cast<int>(event.device)))
    record(trace::Kind::kCourse, sample.used_bytes, sample.held_bytes, 0, sample.clock_ns);
}

// What was in use before the program began counts as its context, until it is known to be a neighbour's.
void Ladder::Incident::record_neighbours(std::chrono::milliseconds most) {
  trace::Trace* trace = allocator_.trace();
  if (trace == nullptr) return;
  uint64_t held = 0;
  for (const Neighbour& neighbour : neighbours_on(allocator_.table(), static_cast<int>(event.device), most)) {
    record(trace::Kind::kProcess, neighbour.process, neighbour.held_bytes, neighbour.cached_bytes,
           trace->intern(neighbour.program));
    held += std::min(neighbour.held_bytes, UINT64_MAX - held);
    knows_neighbours_ = true;
  }
  if (!outside_ || held <= outside_->others) return;
  const uint64_t others = std::min(held, outside_->context + outside_->others);
  record_term(trace::Term::kContext, outside_->context + outside_->others - others);
  record_term(trace::Term::kOthers, others);
}

void Ladder::Incident::refusal(const Entry& entry, const char* why) {
  const bool has_run = std::ranges::find(exhausted_, entry.id, &Exhausted::id) != exhausted_.end();
  if (!has_run || !refusals_.contains(entry.name)) refusals_[entry.name] = why;
}

void Ladder::Incident::failed(const Entry& entry, bool counted) {
  const auto known = std::ranges::find(exhausted_, entry.id, &Exhausted::id);
  if (known == exhausted_.end()) return exhausted_.push_back({entry.id, 1, counted, true});
  ++known->runs;
  known->passed_over = true;
}

bool Ladder::Incident::is_exhausted(StrategyId id) const {
  const auto known = std::ranges::find(exhausted_, id, &Exhausted::id);
  return known != exhausted_.end() && known->passed_over;
}

void Ladder::Incident::forgive_after_progress() {
  std::erase_if(exhausted_, [](const Exhausted& strategy) { return strategy.counted; });
}

bool Ladder::Incident::give_second_chances() {
  bool given = false;
  for (Exhausted& strategy : exhausted_) {
    if (!strategy.counted || !strategy.passed_over || strategy.runs >= kMostUselessRuns) continue;
    strategy.passed_over = false;
    given = true;
  }
  return given;
}

}  // namespace spillway
