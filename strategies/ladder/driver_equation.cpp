#include "strategies/ladder/driver_equation.h"

#include <algorithm>
#include <chrono>
#include <optional>

#include "allocator/accounting/process_budget.h"
#include "strategies/budget/device_room.h"
#include "strategies/framework/framework.h"

namespace spillway {
namespace {
using trace::Term;
constexpr auto kFrameworkLoads = std::chrono::milliseconds(500);
constexpr auto kFrameworkAnswers = std::chrono::milliseconds(20);

// What LibTorch's own allocator holds, where it tells; the less exact answer is right in sum.
std::optional<FrameworkState> held_by_framework(const OomEvent& event) {
  if (!prepare_framework_within(kFrameworkLoads)) return std::nullopt;
  const auto device = static_cast<int>(event.device);
  const auto state = event.inside_framework ? framework_state_inside(device) : std::nullopt;
  if (state) return state;
  const auto memory =
      event.inside_framework ? framework_memory_inside(device) : framework_memory(device, kFrameworkAnswers);
  if (!memory || memory->used_bytes > memory->held_bytes) return std::nullopt;
  FrameworkState held{};
  held.requested = memory->used_bytes;
  held.idle = memory->held_bytes - memory->used_bytes;
  return held;
}

// What is on nobody's account is one term: contexts, other libraries, other processes.
void add_framework(Terms* terms, const FrameworkState& held, uint64_t limit, uint64_t free) {
  const uint64_t rest = limit - free - held.held();
  for (const auto& [term, bytes] : Terms{{Term::kLimit, limit},
                                         {Term::kLive, held.requested},
                                         {Term::kRounding, held.rounding},
                                         {Term::kCached, held.idle},
                                         {Term::kPending, held.pending},
                                         {Term::kPools, held.pools_idle},
                                         {Term::kContext, rest},
                                         {Term::kStranded, 0},
                                         {Term::kOthers, 0}})
    terms->emplace_back(term, bytes);
}

// What of the usable bytes LibTorch's requests must leave.
uint64_t reserve_of(const Allocator& allocator, const OomEvent& event, const DeviceRoom& room) {
  const spillway_budget* budget = allocator.budget();
  const auto device = static_cast<size_t>(event.device);
  if (budget == nullptr || device >= SPILLWAY_MOST_DEVICES || !event.inside_framework) return 0;
  const uint64_t reserve = budget::read(budget->reserve_bytes);
  const uint64_t beside = room.free > reserve ? room.free - reserve : 0;
  return room.usable - std::min({room.usable, beside, budget::room(*budget, device, reserve)});
}

// Of a limit of its own LibTorch's allocator counts what it holds, and nothing else.
Terms of_framework_limit(const OomEvent& event, const DeviceRoom& room) {
  const auto held = held_by_framework(event);
  if (!held || held->held() > event.framework_limit) return {};
  const uint64_t free = event.framework_limit - held->held();
  Terms terms{{Term::kFree, free}, {Term::kDevice, room.limit}, {Term::kDeviceFree, room.usable}};
  add_framework(&terms, *held, event.framework_limit, free);
  return terms;
}

}  // namespace

Terms driver_equation(const Allocator& allocator, const OomEvent& event) {
  const auto room = device_room(allocator, event.device);
  if (!room) return {};
  if (event.framework_limit != 0) return of_framework_limit(event, *room);
  const uint64_t reserve = reserve_of(allocator, event, *room);
  Terms terms{{Term::kFree, room->usable - reserve}};
  if (reserve != 0) terms.emplace_back(Term::kReserve, reserve);
  const auto held = held_by_framework(event);
  const bool adds_up = held && held->held() <= room->limit && room->usable <= room->limit - held->held();
  // The card is what the process may have of it, unless more would have been enough for this request.
  const bool limited = room->usable < room->free && event.rounded_bytes <= room->free;
  terms.emplace_back(Term::kDevice, adds_up && limited ? room->total : room->limit);
  if (adds_up) add_framework(&terms, *held, room->limit, room->usable);
  return terms;
}

}  // namespace spillway
