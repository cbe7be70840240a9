#include "strategies/ladder/ladder.h"

#include <algorithm>
#include <cstdio>
#include <ranges>
#include <thread>

#include "strategies/ladder/incident.h"
#include "strategies/quiesce/quiesce.h"
#include "strategies/quiesce/wait_until_idle.h"

namespace spillway {
namespace {
thread_local bool inside_strategy = false;
std::atomic<uint64_t> last_settled{0};
thread_local uint64_t taken_up_to = 0;  // incidents that had ended when this thread took a move
constexpr size_t kSettledKept = 64;
// Of queued work that gets on. Such a request would have waited for it without Spillway too.
constexpr auto kMostQueued = std::chrono::minutes(2);
constexpr uint64_t kSimilarCost = 4;  // within this factor the stronger guarantee goes first

size_t this_thread() {
  return std::hash<std::thread::id>()(std::this_thread::get_id());
}
}  // namespace

// Microseconds for a byte that the request is short of, times 2^20; the size of the offer beyond that is
// worth nothing. A cost that the product has no room for is as dear as can be.
static uint64_t unit_cost(const Offer& offer, const OomEvent& event) {
  constexpr uint64_t kDearest = (UINT64_MAX >> 20) - 1;
  const uint64_t useful = std::max<uint64_t>(std::min(offer.bytes, event.short_bytes), 1);
  return ((std::min(offer.cost_us, kDearest) + 1) << 20) / useful;
}

Ladder::Ladder(Allocator& allocator, LadderOptions options) : allocator_(allocator), options_(options) {}
Ladder::~Ladder() = default;

bool Ladder::inside() noexcept {
  return inside_strategy;
}

LadderOutcome Ladder::handle(PendingRequest& request) noexcept {
  request.event.allowed = allowed_.load();
  if (const auto source = phase_source_.load()) request.event.phase = source();
  Incident incident(allocator_, request, options_);
  incident.open(optimizer_steps_);
  const LadderOutcome outcome = climb(incident);
  incident.close(outcome);
  settle(incident, outcome);
  return outcome;
}

void Ladder::note(PendingRequest& request) noexcept {
  Incident incident(allocator_, request, options_);
  incident.open(optimizer_steps_);
  incident.close(LadderOutcome::kGiveUp);
  settle(incident, LadderOutcome::kGiveUp);
}

// In place first: what nobody uses before what is in use, and of that the cheapest byte; then a plan move;
// and what has failed again and again only when nothing else is left, and after that what would be too slow.
// A strategy that gained nothing is asked again only if it had counted its bytes: when something else has
// gained some, and once more before giving up, since a call of the driver may have failed once.
LadderOutcome Ladder::climb(Incident& incident) {
  PendingRequest& request = incident.request;
  if (request.retry()) return LadderOutcome::kGranted;
  for (const Round& round : {Round{}, Round{.broken = true}, Round{.slow = true}, Round{true, true}}) {
    while (incident.may_step()) {
      const Candidate candidate = choose(incident, round, /*plan_moves=*/false);
      if (candidate.entry == nullptr && incident.give_second_chances()) continue;
      if (candidate.entry == nullptr) break;
      if (run(candidate, incident).bytes == 0)
        incident.failed(*candidate.entry, candidate.offer.counted);
      else
        incident.forgive_after_progress();
      if (request.retry()) return LadderOutcome::kGranted;
    }
    // Room was made, and using it failed: the driver may have refused a call that it grants the second time.
    if (incident.gained() != 0 && request.retry()) return LadderOutcome::kGranted;
    const Candidate move = choose(incident, round, /*plan_moves=*/true);
    if (move.entry == nullptr) continue;
    run(move, incident);
    incident.move = move.entry->id;
    return LadderOutcome::kUnwind;
  }
  return LadderOutcome::kGiveUp;
}

// What cannot be had, a strategy that needs it does not get: ranks can only agree on a plan, and nothing
// stands still for a capture.
bool Ladder::can_run(const StrategyInfo& info, const OomEvent& event, bool plan_moves) const {
  const bool unwinds = (info.needs & kNeedsUnwinding) != 0;
  const uint32_t serves = event.source == Source::kDriverCaller ? kServesDriverCallers : kServesAllocator;
  const bool locked = (info.needs & kNeedsFrameworkLock) != 0 && event.inside_framework;
  const bool gated =
      (info.needs & kNeedsGate) == 0 || (gate() != nullptr && event.capture == CaptureState::kNone);
  return unwinds == plan_moves && (!unwinds || event.may_unwind) && gated && (info.serves & serves) != 0 &&
         !locked && (unwinds || (info.needs & kNeedsRanks) == 0);
}

Ladder::Candidate Ladder::choose(Incident& incident, const Round& round, bool plan_moves) {
  std::vector<Candidate> candidates;
  for (const std::shared_ptr<Entry>& entry : entries()) {
    if (!can_run(entry->info, incident.event, plan_moves) || entry->info.guarantee > incident.event.allowed)
      continue;
    if (is_broken(*entry) != round.broken || incident.is_exhausted(entry->id) || !enter(*entry)) continue;
    const Offer offer = entry->strategy->offer(incident.request);
    leave(*entry);
    const bool refused = offer.bytes == 0 || (offer.takes == Takes::kSlow && !round.slow);
    if (refused && offer.why_not[0] != '\0') incident.refusal(*entry, offer.why_not);
    if (!refused) candidates.push_back({entry, offer, unit_cost(offer, incident.event)});
  }
  const auto first = std::ranges::min_element(
      candidates, {}, [](const Candidate& candidate) { return candidate.offer.takes; });
  std::erase_if(candidates, [takes = first == candidates.end() ? Takes::kIdle : first->offer.takes](
                                const Candidate& candidate) { return candidate.offer.takes != takes; });
  uint64_t cheapest = UINT64_MAX;
  for (const Candidate& candidate : candidates) cheapest = std::min(cheapest, candidate.unit_cost);
  Candidate best;
  for (const Candidate& candidate : candidates) {
    if (candidate.unit_cost / kSimilarCost > cheapest) continue;
    if (best.entry == nullptr || candidate.entry->info.guarantee < best.entry->info.guarantee ||
        (candidate.entry->info.guarantee == best.entry->info.guarantee &&
         candidate.unit_cost < best.unit_cost))
      best = candidate;
  }
  return best;
}

Relief Ladder::run(const Candidate& candidate, Incident& incident) {
  Entry& entry = *candidate.entry;
  Relief relief;
  const bool slow = candidate.offer.takes == Takes::kSlow;
  if (slow) incident.no_refusal(entry);
  const auto start = std::chrono::steady_clock::now();
  if (enter(entry)) {
    relief = relieve(entry, incident.request);
    leave(entry);
  }
  const uint64_t us = microseconds_since(start);
  entry.tried.fetch_add(1);
  entry.useful.fetch_add(relief.bytes != 0 ? 1 : 0);
  entry.bytes.fetch_add(relief.bytes);
  entry.microseconds.fetch_add(us);
  incident.step(entry, candidate.offer, relief, us);
  if (relief.bytes == 0 && relief.why_not[0] != '\0') incident.refusal(entry, relief.why_not);
  if (slow && relief.bytes != 0) say_slow_once(entry, candidate.offer);
  if (std::ranges::find(incident.used, candidate.entry) == incident.used.end())
    incident.used.push_back(candidate.entry);
  return relief;
}

void Ladder::say_slow_once(const Entry& entry, const Offer& offer) {
  if (said_slow_.exchange(true)) return;
  std::fprintf(stderr, "spillway: %s: %s; it is used, as nothing else gives enough\n", entry.name.c_str(),
               offer.why_not);
}

Relief Ladder::relieve(Entry& entry, PendingRequest& request) {
  const OomEvent& event = request.event;
  constexpr Relief kNotReady{0, false, "the device did not come to rest"};
  if ((entry.info.needs & kNeedsGate) != 0) {
    const Quiesce quiesce(allocator_, *gate(), std::chrono::steady_clock::now() + kMostQueued);
    return quiesce.held() ? entry.strategy->relieve(request) : kNotReady;
  }
  const bool waits = (entry.info.needs & kNeedsIdleDevice) != 0;
  const bool can_wait = event.capture == CaptureState::kNone && allocator_.uses(event.device);
  if (waits && (!can_wait || !wait_until_idle(allocator_, event.deadline))) return kNotReady;
  return entry.strategy->relieve(request);
}

bool Ladder::at_rest(const std::function<void()>& work,
                     std::chrono::steady_clock::time_point deadline) noexcept {
  if (inside_strategy || gate() == nullptr) return false;
  const Quiesce quiesce(allocator_, *gate(), deadline);
  if (quiesce.held()) work();
  return quiesce.held();
}

// Marks the entry as running, so that it is not removed under the call. False: it was removed.
bool Ladder::enter(Entry& entry) {
  const Locked guard(mutex_);
  if (entry.removed) return false;
  ++entry.running;
  inside_strategy = true;
  return true;
}

void Ladder::leave(Entry& entry) {
  const Locked guard(mutex_);
  inside_strategy = false;
  if (--entry.running == 0) idle_.notify_all();
}

Ladder::Entries Ladder::entries() {
  const Locked guard(mutex_);
  return entries_;
}

bool Ladder::is_broken(const Entry& entry) const {
  return entry.useless.load() >= options_.useless_until_broken;
}

void Ladder::settle(const Incident& incident, LadderOutcome outcome) {
  for (const std::shared_ptr<Entry>& entry : incident.used) {
    if (outcome == LadderOutcome::kGranted)
      entry->useless.store(0);
    else if ((entry->info.needs & kNeedsUnwinding) == 0)
      entry->useless.fetch_add(1);
  }
  const Locked guard(mutex_);
  if (settled_.size() == kSettledKept) settled_.erase(settled_.begin());
  settled_.push_back({.order = ++last_settled,
                      .incident = incident.event.incident,
                      .thread = this_thread(),
                      .unwound = outcome == LadderOutcome::kUnwind,
                      .move = incident.move,
                      .story = incident.story});
  last_ = {.incident = incident.event.incident,
           .requested_bytes = incident.event.requested_bytes,
           .gained_bytes = incident.gained(),
           .microseconds = incident.microseconds(),
           .outcome = outcome,
           .ended = std::chrono::steady_clock::now(),
           .story = incident.story};
}

StrategyId Ladder::add(std::unique_ptr<Strategy> strategy) {
  auto entry = std::make_shared<Entry>();
  entry->info = strategy->info();
  entry->name = std::string(entry->info.name);
  entry->info.name = entry->name;
  entry->strategy = std::move(strategy);
  const Locked guard(mutex_);
  entry->id = StrategyId{next_id_++};
  entries_.push_back(entry);
  return entry->id;
}

bool Ladder::remove(StrategyId id) {
  if (inside_strategy) return false;
  const Locked guard(mutex_);
  const auto found =
      std::find_if(entries_.begin(), entries_.end(), [id](const auto& entry) { return entry->id == id; });
  if (found == entries_.end()) return false;
  const std::shared_ptr<Entry> entry = std::move(*found);
  entries_.erase(found);
  entry->removed = true;
  while (entry->running != 0) idle_.wait(mutex_);
  return true;
}

std::vector<StrategyCounts> Ladder::counts() {
  std::vector<StrategyCounts> out;
  for (const auto& entry : entries())
    out.push_back({entry->name, entry->info.guarantee, entry->tried.load(), entry->useful.load(),
                   entry->bytes.load(), entry->microseconds.load()});
  return out;
}

// A program may ask for what another thread's unwind chose: an autograd thread's fails in a backward that the
// asking thread has begun.
Ladder::Settled* Ladder::find_chosen_move() {
  Settled* others = nullptr;
  for (Settled& settled : std::views::reverse(settled_)) {
    const bool taken = settled.move == StrategyId::kNone;
    if (settled.thread == this_thread()) {
      if (settled.unwound) return taken ? others : &settled;
    } else if (others == nullptr && !taken && settled.order > taken_up_to) {
      others = &settled;
    }
  }
  return others;
}

StrategyId Ladder::take_chosen_move(uint64_t* incident) {
  const Locked guard(mutex_);
  const Settled* found = find_chosen_move();
  if (found == nullptr) return StrategyId::kNone;
  const StrategyId move = found->move;
  if (incident != nullptr) *incident = found->incident;
  // A plan move gains its bytes after the unwinding, out of the ladder's sight: it was of use if the program
  // took it.
  for (const std::shared_ptr<Entry>& entry : entries_)
    if (entry->id == move) entry->useful.fetch_add(1);
  taken_up_to = settled_.back().order;
  for (Settled& settled : settled_)
    if (settled.thread == found->thread) settled.move = StrategyId::kNone;
  return move;
}

StrategyId Ladder::move_of(uint64_t incident) {
  const Locked guard(mutex_);
  for (const Settled& settled : settled_)
    if (settled.incident == incident) return settled.move;
  return StrategyId::kNone;
}

IncidentSummary Ladder::last_incident() {
  const Locked guard(mutex_);
  return last_;
}

std::string Ladder::story_of(uint64_t incident) {
  const Locked guard(mutex_);
  for (const Settled& settled : settled_)
    if (settled.incident == incident) return settled.story;
  return "";
}

}  // namespace spillway
