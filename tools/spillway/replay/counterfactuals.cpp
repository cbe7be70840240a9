#include "tools/spillway/replay/counterfactuals.h"

#include <algorithm>

#include "strategies/framework/segment_size.h"
#include "tools/spillway/history/moment.h"
#include "tools/spillway/replay/input/input.h"
#include "tools/spillway/replay/replay.h"
#include "tools/spillway/units.h"

namespace spillway::tools {
namespace {

using Clock = std::chrono::steady_clock;

constexpr uint64_t kRounding = 512;
// A bisection is about twenty replays: of more requests than this it takes too long.
constexpr size_t kMostRequestsToBisect = 1'000'000;

// Spillway's snapshots show its segments as expandable, whatever PyTorch's setting says.
ReplayAllocator allocator_of(const MemoryHistory& history, const DeviceHistory& device) {
  if (history.of_spillway) return ReplayAllocator::kSpillway;
  if (torch_settings_of(history).expandable_segments) return ReplayAllocator::kExpandable;
  const bool other = std::any_of(device.segments.begin(), device.segments.end(),
                                 [](const HistorySegment& segment) { return segment.expandable; });
  return other ? ReplayAllocator::kSpillway : ReplayAllocator::kNative;
}

class Author {
 public:
  Author(const MemoryHistory& history, const HistoryFindings& found, uint64_t most_ms)
      : history_(history),
        found_(found),
        device_(history.devices.at(found.device)),
        until_(Clock::now() + std::chrono::milliseconds(most_ms)),
        settings_(torch_settings_of(history)),
        used_(allocator_of(history, device_)),
        failure_event_(found.failure_event.value_or(device_.events.size())),
        request_bytes_(found.failure ? std::max<uint64_t>(found.failure->bytes, 1) : 1) {}

  Counterfactuals run() {
    out_.no_answer = reason_for_none();
    if (!out_.no_answer.empty()) return std::move(out_);
    requests_ = requests_of(device_, failure_event_);
    set_capacity();
    doubt();
    replay_on(ReplayAllocator::kExpandable, "PyTorch's expandable segments",
              "PYTORCH_ALLOC_CONF=expandable_segments:True");
    replay_on(ReplayAllocator::kSpillway, "Spillway as PyTorch's allocator",
              "spillway run --mode replace -- ...");
    more_memory();
    less_growth(false, "freeing what each step leaves behind", " grow from step to step");
    less_growth(true, "a bound on what is made anew, larger each time", " grow so");
    smaller_batch();
    colder_memory();
    return std::move(out_);
  }

 private:
  std::string reason_for_none() const;
  void set_capacity();
  void doubt();
  void replay_on(ReplayAllocator allocator, const char* what, const char* setting);
  void more_memory();
  void less_growth(bool replaced, const char* what, const char* grows);
  void smaller_batch();
  void colder_memory();
  ReplayOutcome replay_in(ReplayAllocator allocator, uint64_t share);
  SmallestCapacity smallest_in(ReplayAllocator allocator, uint64_t share);
  // A part of the time that is left.
  ReplayDeadline deadline(uint64_t share) const {
    return Clock::now() + std::max(until_ - Clock::now(), Clock::duration::zero()) / share;
  }
  // What is missing if the program's live bytes were packed without a gap.
  uint64_t short_bytes() const {
    const uint64_t wanted = found_.holdings.in_use + found_.holdings.rounding + request_bytes_;
    return wanted > capacity_ ? wanted - capacity_ : 0;
  }
  // A request that fails though the card has room meets a limit that the history does not hold.
  bool is_limited() const { return found_.holdings.free.value_or(0) >= native_segment_bytes(request_bytes_); }
  void add(Alternative item) { out_.items.push_back(std::move(item)); }

  const MemoryHistory& history_;
  const HistoryFindings& found_;
  const DeviceHistory& device_;
  const ReplayDeadline until_;
  const TorchSettings settings_;
  const ReplayAllocator used_;
  const size_t failure_event_;
  const uint64_t request_bytes_;
  Requests requests_;
  uint64_t capacity_ = 0;
  Counterfactuals out_;
};

std::string Author::reason_for_none() const {
  if (!found_.failure || !found_.failure_event) return "no request failed";
  if (history_.requests_only)
    return "the file tells neither the allocator nor what it had: spillway replay FILE --capacity SIZE tries "
           "others";
  const bool allocates =
      std::any_of(device_.events.begin(), device_.events.end(),
                  [](const HistoryEvent& event) { return event.action == Action::kAllocate; });
  if (!allocates) return "the history has no request before the one that failed";
  // Where a small part is missing, the rest is replayed on a capacity that is smaller by it.
  constexpr uint64_t kLargePart = 4;
  const uint64_t unknown = device_.unknown_bytes;
  if (unknown > (found_.holdings.in_use + std::min(unknown, UINT64_MAX / 2)) / kLargePart)
    return size_text(unknown) + " in use were allocated before the history begins";
  if (found_.contradictions > 0)
    return "the history contradicts itself: what was held when the request failed is not certain";
  return "";
}

void Author::set_capacity() {
  const Holdings& at = found_.holdings;
  const uint64_t free = at.free.value_or(0);
  capacity_ = at.reserved;
  if (!is_limited())
    capacity_ += free;
  else
    out_.notes.emplace_back("the card had room: what the allocator held then counts as its limit");
  capacity_ -= std::min(capacity_, device_.unknown_bytes);
}

// A replay of what did happen that comes out otherwise casts doubt on those of what did not.
void Author::doubt() {
  if (requests_.older > 0)
    out_.notes.push_back(size_text(requests_.older_bytes) +
                         " were allocated before the history began, where is not known: they are placed by "
                         "their addresses");
  if (device_.unknown_bytes > 0)
    out_.notes.push_back(size_text(device_.unknown_bytes) + " in use are not in the history");
  for (const std::string& setting : settings_.ignored)
    out_.notes.push_back("the setting " + setting + " does not count");
  const ReplayOutcome again = replay_in(used_, 3);
  if (!again.finished || (again.failure && again.failure->request + 1 == requests_.requests.size())) return;
  out_.notes.push_back(std::string("replayed on the program's own allocator (") +
                       replay_allocator_name(used_) +
                       (again.failure ? "), an earlier request fails" : "), this request is served") +
                       ": the replay differs from what happened");
}

ReplayOutcome Author::replay_in(ReplayAllocator allocator, uint64_t share) {
  return replay(requests_, {allocator, settings_}, capacity_, deadline(share));
}

SmallestCapacity Author::smallest_in(ReplayAllocator allocator, uint64_t share) {
  if (requests_.requests.size() > kMostRequestsToBisect) return {};
  return smallest_capacity(requests_, {allocator, settings_}, deadline(share));
}

void Author::replay_on(ReplayAllocator allocator, const char* what, const char* setting) {
  if (allocator == used_ || used_ == ReplayAllocator::kSpillway) return;
  Alternative item{what, setting, std::nullopt, std::nullopt, std::nullopt, "", Sureness::kReplayed};
  // The program's own allocator would have waited for them too, had it been able to.
  if (found_.verdict.cause == Cause::kPendingFrees) {
    item.text = "not found out: it needs what other streams, or a capture that is under way, still use";
    return add(std::move(item));
  }
  const ReplayOutcome outcome = replay_in(allocator, 3);
  if (!outcome.error.empty() || !outcome.finished) {
    item.text = outcome.error.empty() ? "not found out: the replay takes too long" : outcome.error;
    return add(std::move(item));
  }
  item.fits = outcome.completes();
  if (outcome.completes()) {
    item.bytes = capacity_ - std::min(capacity_, outcome.most_reserved);
    item.text = "serves this request; at most " + size_text(outcome.most_reserved) + " of " +
                size_text(capacity_) + " are held";
    return add(std::move(item));
  }
  const bool same = outcome.failure->request + 1 == requests_.requests.size();
  item.text = same ? "does not serve it either" : "fails at an earlier request";
  item.bytes = smallest_in(allocator, 3).bytes;
  if (item.bytes) *item.bytes -= std::min(*item.bytes, capacity_);
  if (item.bytes) item.text += ": " + size_text(*item.bytes) + " more are needed";
  add(std::move(item));
}

void Author::more_memory() {
  Alternative item{"more memory, with the allocator that was used", "", {}, {}, {}, "", Sureness::kReplayed};
  const SmallestCapacity smallest = smallest_in(used_, 1);
  item.bytes = smallest.bytes;
  if (!item.bytes) {
    const bool tried = requests_.requests.size() <= kMostRequestsToBisect;
    item.text = !smallest.error.empty() ? smallest.error
                : tried                 ? "not found out: the replays take too long"
                                        : "not found out: too many requests to try capacities";
    return add(std::move(item));
  }
  item.fits = true;
  *item.bytes -= std::min(*item.bytes, capacity_);
  const uint64_t allocators = capacity_ + device_.unknown_bytes + *item.bytes;
  item.text = "at least " + size_text(*item.bytes) + " more: ";
  const std::optional<uint64_t> outside = found_.holdings.outside();
  if (is_limited()) {
    item.needed = allocators;
    item.text += "a limit of " + size_text(allocators);
  } else if (outside) {
    item.needed = allocators + *outside;
    item.text += "a card, or a limit, of " + size_text(*item.needed) + ", with the " + size_text(*outside) +
                 " that are not the allocator's";
  } else {
    const std::optional<uint64_t> card = found_.holdings.capacity;  // a trace knows it, and takes no other
    item.text += size_text(allocators) + " for the allocator, and what else is on the card";
    item.text += card ? ", which is not known: what it held and what was free are more than the " +
                            size_text(*card) + " of the card"
                      : " (--capacity says it)";
  }
  add(std::move(item));
}

void Author::less_growth(bool replaced, const char* what, const char* grows) {
  uint64_t grown = 0;
  for (const Holder& holder : found_.holders)
    if (holder.growth && holder.growth->replaced == replaced) grown += holder.bytes;
  if (grown == 0) return;
  const bool enough = grown >= std::max(short_bytes(), request_bytes_);
  add({what, "", enough, grown, std::nullopt,
       size_text(grown) + grows + (enough ? "" : ", less than what this request takes"),
       Sureness::kArithmetic});
}

// What the step has allocated, the request included, is taken for what scales with the batch.
void Author::smaller_batch() {
  if (!found_.step_began) return;
  uint64_t of_step = (request_bytes_ + kRounding - 1) / kRounding * kRounding, older = 0;
  for (const HeldBlock& block : moment_at(device_, failure_event_).blocks)
    (block.born != kBeforeHistory && block.born >= *found_.step_began ? of_step : older) += block.size;
  if (older >= capacity_)
    return add({"a smaller batch", "", false, older - capacity_, std::nullopt,
                "what is older than the step takes all that there is", Sureness::kEstimate});
  const uint64_t room = capacity_ - older;
  if (room >= of_step) return;  // it is the placement that fails
  const auto percent =
      static_cast<uint64_t>(100.0 * static_cast<double>(room) / static_cast<double>(of_step));
  add({"a smaller batch", "", true, of_step - room, std::nullopt,
       "about " + std::to_string(percent) + "% of this one, if all of the step's " + size_text(of_step) +
           " scale with it",
       Sureness::kEstimate});
}

void Author::colder_memory() {
  if (!found_.step_began || used_ == ReplayAllocator::kSpillway) return;
  uint64_t cold = 0;
  for (const HeldBlock& block : moment_at(device_, failure_event_).blocks)
    if (!block.pending && (block.born == kBeforeHistory || block.born < *found_.step_began))
      cold += block.size;
  if (cold == 0) return;
  add({"cold memory in host memory", "spillway run --mode replace -- ...", cold >= short_bytes(), cold,
       std::nullopt, size_text(cold) + " are older than the step; Spillway can move what is not in use",
       Sureness::kEstimate});
}

}  // namespace

const char* sureness_name(Sureness sure) {
  static constexpr const char* kNames[] = {"replayed", "arithmetic", "estimate"};
  return kNames[static_cast<size_t>(sure)];
}

Counterfactuals what_would_have_fitted(const MemoryHistory& history, const HistoryFindings& found,
                                       uint64_t most_ms) {
  return Author(history, found, most_ms).run();
}

}  // namespace spillway::tools
