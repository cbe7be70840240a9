#include "tools/spillway/history/findings/findings.h"

#include <algorithm>
#include <array>
#include <map>

#include "allocator/accounting/memory.h"
#include "strategies/framework/segment_size.h"
#include "tools/spillway/history/findings/growth.h"
#include "tools/spillway/history/findings/passes.h"
#include "tools/spillway/history/moment.h"
#include "tools/spillway/history/names.h"
#include "tools/spillway/history/steps.h"

namespace spillway::tools {
namespace {

constexpr size_t kNoEvent = kBeforeHistory;

struct Tally {
  uint64_t bytes = 0, blocks = 0;
  size_t oldest = kNoEvent;
  bool before_history = false;
  std::map<size_t, uint64_t> by_step;  // bytes that each step has left
};

constexpr size_t kMostStepsCompared = 1'000'000;
// The first steps make what stays for good: the optimizer's state, caches. The last one is not over.
constexpr uint64_t kSettledAfter = 2, kLeastSteps = 3;

// What is called a step may be a layer: then a place that keeps something of each step keeps it in few of
// them, but all along.
class Spread {
 public:
  explicit Spread(uint64_t settled) : settled_(settled) {}
  void add(uint64_t step) {
    ++steps_;
    windows_[(step - kSettledAfter) * kWindows / settled_] = true;
  }
  uint64_t steps() const { return steps_; }
  bool is_wide() const {
    if (settled_ < 2 * kWindows) return steps_ * 2 >= settled_;
    return static_cast<size_t>(std::count(windows_.begin(), windows_.end(), true)) + kMostEmpty >= kWindows;
  }

 private:
  static constexpr size_t kWindows = 8, kMostEmpty = 1;
  uint64_t settled_, steps_ = 0;
  std::array<bool, kWindows> windows_{};
};

std::optional<Growth> growth_of(const Tally& tally, const Steps& steps) {
  if (steps.count() < kSettledAfter + kLeastSteps) return std::nullopt;
  Spread spread(steps.count() - kSettledAfter);
  uint64_t bytes = 0;
  for (const auto& [step, left] : tally.by_step) {
    if (step < kSettledAfter || step >= steps.count()) continue;
    spread.add(step);
    bytes += left;
  }
  if (spread.steps() < kLeastSteps || !spread.is_wide()) return std::nullopt;
  return Growth{spread.steps(), bytes / spread.steps()};
}

uint64_t age_at(const DeviceHistory& device, size_t moment, size_t born) {
  const size_t last = std::min(moment, device.events.size() - 1);
  const uint64_t now = device.events[last].microseconds, then = device.events[born].microseconds;
  return now > then ? now - then : 0;
}

void put_in_order(std::vector<Holder>* holders) {
  std::ranges::stable_sort(*holders, std::ranges::greater(), &Holder::bytes);
}

bool is_of_backward(const StackName& name) {
  return name.where.starts_with("backward of ");
}

std::vector<Holder> holders_at(const Moment& moment, const DeviceHistory& device, const Steps& steps,
                               StackNames* names) {
  std::map<StackName, Tally> tallies;
  for (const HeldBlock& block : moment.blocks) {
    if (block.pending) continue;
    Tally& tally = tallies[names->of(block.stack)];
    tally.bytes += block.requested;
    ++tally.blocks;
    if (block.born == kBeforeHistory) {
      tally.before_history = true;
      continue;
    }
    tally.oldest = std::min(tally.oldest, block.born);
    tally.by_step[steps.of(block.born)] += block.requested;
  }
  std::vector<Holder> holders;
  for (const auto& [name, tally] : tallies) {
    Holder holder{name.where, name.caller, tally.bytes, tally.blocks, std::nullopt, std::nullopt};
    // The waves of a first backward pass that recomputes are its layers, which leave the gradients.
    if (!steps.are_guessed() || !is_of_backward(name)) holder.growth = growth_of(tally, steps);
    if (!tally.before_history) holder.oldest_us = age_at(device, moment.event, tally.oldest);
    holders.push_back(std::move(holder));
  }
  put_in_order(&holders);
  return holders;
}

Holder* place_in(std::vector<Holder>* holders, const Holder& place) {
  const auto found = std::ranges::find_if(*holders, [&](const Holder& holder) {
    return holder.where == place.where && holder.caller == place.caller;
  });
  return found == holders->end() ? nullptr : &*found;
}

// What the allocator counted goes before what the history has left of it; of what grows, and since when,
// only the history tells. `unnamed`: what memory without a stack is called.
void take_counted(const Counted& counted, std::string_view unnamed, std::vector<Holder>* holders) {
  if (counted.holders.empty()) return;
  std::vector<Holder> all = counted.holders;
  uint64_t named = 0;
  for (Holder& holder : all) {
    named += std::min(holder.bytes, UINT64_MAX - named);
    const Holder* const known = place_in(holders, holder);
    if (known == nullptr) continue;
    holder.growth = known->growth;
    if (holder.blocks <= known->blocks) holder.oldest_us = known->oldest_us;
  }
  for (Holder& holder : *holders) {
    if (holder.where != unnamed || counted.in_use <= named) continue;
    holder.bytes = std::min(holder.bytes, counted.in_use - named);
    all.push_back(holder);
  }
  *holders = std::move(all);
  put_in_order(holders);
}

// `asker`: the pool and the stream of the request.
Holdings holdings_at(const Moment& moment, const PoolAndStream& asker) {
  Holdings holdings;
  holdings.reserved = moment.reserved;
  for (const HeldBlock& block : moment.blocks) {
    const uint64_t requested = std::min(block.requested, block.size);
    if (block.pending)
      holdings.pending += block.size;
    else
      holdings.in_use += requested, holdings.rounding += block.size - requested;
  }
  for (const auto& [owner, idle] : moment.idle) {
    if (owner != asker) {
      holdings.elsewhere += idle.bytes;
      continue;
    }
    holdings.idle = idle.bytes;
    holdings.largest_idle = idle.largest;
  }
  return holdings;
}

// The card has what was asked for, and less than the allocator takes for it.
std::string no_segment_text(const Holdings& holdings, uint64_t request) {
  std::string text = size_text(holdings.free.value_or(0)) + " of the card were free, but for " +
                     size_text(request) + " the allocator takes a segment of " +
                     size_text(native_segment_bytes(request));
  if (holdings.idle > 0 && holdings.largest_idle < request)
    text += "; its largest idle piece is " + size_text(holdings.largest_idle);
  return text;
}

Verdict verdict_on(const Holdings& holdings, uint64_t request) {
  if (holdings.free && *holdings.free >= native_segment_bytes(request))
    return {Cause::kLimit, size_text(*holdings.free) +
                               " of the card were free: the process has a limit of its own, such as "
                               "set_per_process_memory_fraction"};
  Memory memory;
  memory.live = holdings.in_use;
  memory.rounding = holdings.rounding;
  memory.pending = holdings.pending;
  memory.cached = holdings.idle;
  memory.pools = holdings.elsewhere;
  memory.free = holdings.free.value_or(0);
  memory.context = holdings.outside().value_or(0);
  memory.limit = memory.sum();
  memory.device = memory.limit;
  // A piece that is large enough was not the request's to have: it lies among small blocks, or is kept whole.
  const uint64_t extent = std::max(holdings.largest_idle, memory.free);
  Verdict verdict = judge(memory, request, extent < request ? std::optional(extent) : std::nullopt);
  if (verdict.cause == Cause::kFragmentation && memory.free >= request)
    verdict.text = no_segment_text(holdings, request);
  return verdict;
}

std::string place_text(const Holder& holder) {
  return holder.where + (holder.caller.empty() ? "" : " from " + holder.caller);
}

// What grows is the cause where without it the request would have had room.
// `unnamed`: what memory without a stack is called; a place with a name says more, though it holds less.
void look_for_a_leak(uint64_t request, std::string_view unnamed, HistoryFindings* found) {
  uint64_t grown = 0, per_step = 0;
  const Holder* largest = nullptr;
  for (const Holder& holder : found->holders) {
    if (!holder.growth || holder.growth->replaced) continue;
    grown += holder.bytes;
    if (largest != nullptr && largest->where != unnamed) continue;
    largest = &holder;
    per_step = holder.growth->bytes_per_step;
  }
  if (largest == nullptr || grown < request || grown < found->holdings.in_use / 8) return;
  found->grows = largest - found->holders.data();
  found->verdict = {Cause::kLeak, size_text(largest->bytes) + " in " + std::to_string(largest->blocks) +
                                      " blocks of " + place_text(*largest) +
                                      " were kept: " + size_text(per_step) + " more after each step"};
}

// Of a trace in which only a sample of the allocations has a place, not each pass is seen.
bool has_every_place(const MemoryHistory& history) {
  const auto stacks = history.settings.find("stacks");
  return !history.of_spillway || (stacks != history.settings.end() && stacks->second == "all");
}

// What each pass of the program's loop leaves, where nobody says what a step is and nothing falls back.
void look_for_what_is_kept(const MemoryHistory& history, const Moment& moment, const Passes& passes,
                           uint64_t request, const Counted& counted, StackNames* names,
                           HistoryFindings* found) {
  const Steps steps(passes.starts);
  std::vector<Holder> by_pass = holders_at(moment, history.devices.at(found->device), steps, names);
  take_counted(counted, history.without_stack, &by_pass);
  uint64_t grown = 0, per_pass = 0;
  const Holder* largest = nullptr;
  for (const Holder& holder : by_pass) {
    if (!holder.growth) continue;
    grown += holder.bytes;
    if (largest != nullptr) continue;
    largest = &holder;
    per_pass = holder.growth->bytes_per_step;
  }
  if (largest == nullptr || grown < request || grown < found->holdings.in_use / 8) return;
  const std::string passed = std::to_string(steps.count()) + (has_every_place(history) ? "" : " or more") +
                             " passes of the loop at " + passes.where;
  found->grows = largest - by_pass.data();
  found->verdict = {Cause::kGrowth, size_text(largest->bytes) + " in " + std::to_string(largest->blocks) +
                                        " blocks of " + place_text(*largest) + " were kept: " +
                                        (has_every_place(history) ? size_text(per_pass) + " " : "") +
                                        "more after each of " + passed};
  found->holders = std::move(by_pass);
  found->steps = steps.count();
  found->step_began = steps.last();
}

// Of too few passes to call it growth: what those between the first and the last have left.
std::string remark_on_the_passes(const Moment& moment, const Passes& passes, const Holdings& holdings) {
  if (passes.starts.empty()) return "";
  const Steps steps(passes.starts);
  std::map<size_t, uint64_t> left;
  uint64_t bytes = 0;
  for (const HeldBlock& block : moment.blocks) {
    if (block.pending || block.born == kBeforeHistory || !passes.has[block.stack]) continue;
    const size_t pass = steps.of(block.born);
    if (pass < kSettledAfter || pass >= steps.count()) continue;
    left[pass] += block.requested;
    bytes += block.requested;
  }
  const bool by_each = left.size() >= 2 && left.size() + kSettledAfter == steps.count();
  if (!by_each || bytes < holdings.in_use / 4) return "";
  return "; " + size_text(bytes) + " of that were allocated in earlier passes of the loop at " +
         passes.where + " and are kept";
}

void look_for_growth(const DeviceHistory& device, const Moment& moment, const FailedRequest& request,
                     bool is_sample, StackNames* names, HistoryFindings* found) {
  const auto replaced = what_is_replaced(device, moment, is_sample, names);
  uint64_t grown = 0, per_step = 0;
  const Holder* largest = nullptr;
  for (Holder& holder : found->holders) {
    const auto place = replaced.find({holder.where, holder.caller});
    if (place == replaced.end() || holder.growth) continue;
    holder.growth = place->second.growth;
    grown += place->second.bytes;
    if (largest != nullptr) continue;
    largest = &holder;
    per_step = place->second.growth.bytes_per_step;
  }
  if (largest == nullptr || grown < found->holdings.in_use / 8) return;
  // What grows is larger than the card where it asked itself: its next copy is more than it ever had.
  const bool asked_itself = largest->where == request.where && largest->caller == request.caller;
  if (grown < request.bytes && !asked_itself) return;
  found->grows = largest - found->holders.data();
  found->verdict = {Cause::kGrowth, size_text(largest->bytes) + " in " + std::to_string(largest->blocks) +
                                        (largest->blocks == 1 ? " block of " : " blocks of ") +
                                        place_text(*largest) + " grow: made anew again and again, " +
                                        size_text(per_step) + " larger each time"};
}

// How far what is in use rises in a step above its lowest before.
struct Rise {
  uint64_t most = 0, at_end = 0;
};
Rise rise_in(const DeviceHistory& device, size_t begin, size_t end) {
  Level level;
  int64_t lowest = 0;
  Rise rise;
  for (size_t i = begin; i < end; ++i) {
    level.take_in(device.events[i]);
    lowest = std::min(lowest, level.bytes());
    rise.at_end = static_cast<uint64_t>(level.bytes()) - static_cast<uint64_t>(lowest);
    rise.most = std::max(rise.most, rise.at_end);
  }
  return rise;
}

// A step that takes far more than all before it: one batch, or one text, is larger than the others.
std::string remark_on_the_step(const DeviceHistory& device, const Steps& steps, size_t failure,
                               uint64_t request) {
  constexpr uint64_t kFarMore = 2;
  const std::vector<size_t>& starts = steps.starts();
  if (starts.size() < kLeastSteps || starts.size() > kMostStepsCompared) return "";
  uint64_t before = 0;
  for (size_t i = 0; i + 1 < starts.size(); ++i)
    before = std::max(before, rise_in(device, starts[i], starts[i + 1]).most);
  const uint64_t now = rise_in(device, starts.back(), failure).at_end + request;
  if (before == 0 || now / kFarMore < before) return "";
  return "; this step takes " + size_text(now) + ", and none before it took more than " + size_text(before);
}

// Whose the idle memory is that the request may not use.
std::string remark_on_the_pools(const std::vector<PoolHolding>& pools) {
  uint64_t held = 0, count = 0;
  const PoolHolding* largest = nullptr;
  for (const PoolHolding& pool : pools) {
    if (pool.in_use > pool.held / 2) continue;
    held += pool.held;
    ++count;
    if (largest == nullptr) largest = &pool;
  }
  if (largest == nullptr) return "";
  std::string text = "; ";
  if (count > 1) text += std::to_string(count) + " pools hold " + size_text(held) + ", the largest is ";
  text += pool_text(largest->pool) + (count > 1 ? " with " : " holds ") + size_text(largest->held);
  if (largest->places.empty()) return text;
  const StackName& place = largest->places.front().place;
  return text + ", allocated by " + place.where + (place.caller.empty() ? "" : " from " + place.caller);
}

size_t last_failure_of(const DeviceHistory& device, uint64_t* count) {
  size_t last = kNoEvent;
  for (size_t i = 0; i < device.events.size(); ++i) {
    if (device.events[i].action != Action::kOutOfMemory) continue;
    ++*count;
    last = i;
  }
  return last;
}

// The device of the last failure; else the one that holds most.
int device_to_show(const MemoryHistory& snapshot) {
  int shown = snapshot.devices.begin()->first;
  uint64_t latest = 0, most = 0;
  bool failed = false;
  for (const auto& [number, device] : snapshot.devices) {
    uint64_t count = 0, held = 0;
    const size_t failure = last_failure_of(device, &count);
    for (const HistorySegment& segment : device.segments) held += segment.size;
    if (failure != kNoEvent && (!failed || device.events[failure].microseconds >= latest)) {
      failed = true;
      latest = device.events[failure].microseconds;
      shown = number;
    } else if (!failed && held > most) {
      most = held;
      shown = number;
    }
  }
  return shown;
}

}  // namespace

std::vector<Holder> holders_before(const MemoryHistory& history, int device, size_t event) {
  const DeviceHistory& told = history.devices.at(device);
  StackNames names(history);
  std::vector<Holder> holders = holders_at(moment_at(told, event), told, Steps(told, event), &names);
  for (Holder& holder : holders) holder.growth.reset();
  return holders;
}

std::vector<size_t> steps_of(const DeviceHistory& device, size_t until) {
  return Steps(device, until).starts();
}

std::optional<uint64_t> Holdings::outside() const {
  if (!capacity || !free || reserved + *free > *capacity) return std::nullopt;
  return *capacity - reserved - *free;
}

std::optional<HistoryFindings> look_into(const MemoryHistory& snapshot, std::optional<uint64_t> capacity,
                                         const Counted& counted) {
  if (snapshot.devices.empty()) return std::nullopt;
  HistoryFindings found;
  found.device = device_to_show(snapshot);
  const DeviceHistory& device = snapshot.devices.at(found.device);
  StackNames names(snapshot);
  const size_t failure = last_failure_of(device, &found.failures);
  const size_t shown = failure == kNoEvent ? device.events.size() : failure;
  const Moment moment = moment_at(device, shown);
  const Steps steps(device, shown);
  PoolAndStream asker;
  if (failure != kNoEvent) asker = {device.events[failure].pool, device.events[failure].stream};
  found.holdings = holdings_at(moment, asker);
  found.holdings.capacity = capacity;
  found.holders = holders_at(moment, device, steps, &names);
  take_counted(counted, snapshot.without_stack, &found.holders);
  if (counted.in_use > found.holdings.in_use) {
    found.holdings.reserved += counted.in_use - found.holdings.in_use;
    found.holdings.in_use = counted.in_use;
  }
  found.kinds = kinds_at(snapshot, moment);
  found.pools = other_pools(device, moment, asker, &names);
  found.steps = steps.count();
  found.events = device.events.size();
  found.allocations =
      static_cast<uint64_t>(std::ranges::count(device.events, Action::kAllocate, &HistoryEvent::action));
  found.contradictions = moment.contradictions;
  if (!device.events.empty())
    found.span_us = device.events.back().microseconds -
                    std::min(device.events.front().microseconds, device.events.back().microseconds);
  const Moment peak = moment_at(device, std::min(peak_of(device), shown));
  found.peak_bytes = holdings_at(peak, asker).in_use;
  found.peak_is_the_failure = found.peak_bytes <= found.holdings.in_use;
  if (!found.peak_is_the_failure) {
    found.at_peak = holders_at(peak, device, steps, &names);
    for (Holder& holder : found.at_peak) holder.growth.reset();  // seen best at the end
  }
  if (failure == kNoEvent) return found;
  found.failure_event = failure;
  found.step_began = steps.last();
  const HistoryEvent& request = device.events[failure];
  const auto& [where, caller] = names.of(request.stack);
  const FailedRequest failed{request.size, request.stream, where, caller};
  found.failure = failed;
  found.holdings.free = request.address;
  found.verdict = verdict_on(found.holdings, std::max<uint64_t>(request.size, 1));
  look_for_growth(device, moment, failed, !has_every_place(snapshot), &names, &found);
  look_for_a_leak(request.size, snapshot.without_stack, &found);
  const auto is_of_size = [&] {
    return found.verdict.cause == Cause::kCapacity || found.verdict.cause == Cause::kFragmentation;
  };
  if (found.verdict.cause == Cause::kPoolIsolation) found.remark = remark_on_the_pools(found.pools);
  const Passes passes = is_of_size() ? passes_before(snapshot, found.device, shown) : Passes();
  if (passes.are_enough())
    look_for_what_is_kept(snapshot, moment, passes, request.size, counted, &names, &found);
  if (is_of_size()) found.remark = remark_on_the_passes(moment, passes, found.holdings);
  if (is_of_size() && found.remark.empty())
    found.remark = remark_on_the_step(device, steps, shown, request.size);
  if (found.verdict.cause == Cause::kFragmentation && !snapshot.of_spillway && !snapshot.requests_only)
    found.near_holes =
        near_holes(device, moment, asker, rounded_block(request.size, device.rounding), &names);
  return found;
}

}  // namespace spillway::tools
