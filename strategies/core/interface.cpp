// The functions of spillway.h.
#include "spillway/spillway.h"

#include <algorithm>
#include <cstring>

#include "allocator/tiers/tiers.h"
#include "strategies/budget/budget.h"
#include "strategies/core/process.h"
#include "strategies/core/registered_strategy.h"

namespace spillway {

void fill_memory(const Memory& memory, int32_t device, spillway_memory* out) {
  spillway_memory filled{};
  filled.size = out->size;
  filled.device = device;
  filled.limit = memory.limit;
  filled.live = memory.live;
  filled.rounding = memory.rounding;
  filled.stranded = memory.stranded;
  filled.cached = memory.cached;
  filled.pending = memory.pending;
  filled.pools = memory.pools;
  filled.context = memory.context;
  filled.others = memory.others + memory.reserve;
  filled.free = memory.free;
  filled.reserved = memory.reserved;
  filled.peak_live = memory.peak_live;
  filled.peak_reserved = memory.peak_reserved;
  filled.failures = memory.failures;
  filled.rescued = memory.rescued;
  filled.unwound = memory.unwound;
  filled.gave_up = memory.gave_up;
  filled.rescued_bytes = memory.rescued_bytes;
  filled.rescue_us = memory.rescue_us;
  filled.driver_calls = memory.driver_calls;
  filled.peak_allocated = memory.peak_allocated;
  filled.device_bytes = memory.device;
  filled.spilled = memory.spilled;
  filled.spilled_peer = memory.spilled_peer;
  filled.spilled_nvme = memory.spilled_nvme;
  std::memcpy(out, &filled, std::min<size_t>(out->size, sizeof(filled)));
}

namespace {

// Everything but freeing, tags and questions is refused inside a strategy.
bool inside(const char* function, spillway_status* status) {
  if (!Ladder::inside()) return false;
  *status = refuse(SPILLWAY_INVALID, std::string(function) + " was called from inside offer or relieve");
  return true;
}

uint64_t address_of(const void* pointer) {
  return reinterpret_cast<uint64_t>(pointer);
}

// Of a registered block's functions. `invalid`: what kInvalid means there.
spillway_status answer(Status status, const char* function, const char* invalid, const FailurePtr& failure) {
  switch (status) {
    case Status::kOk:
      return SPILLWAY_OK;
    case Status::kNotFound:
      return refuse(SPILLWAY_NOT_FOUND, std::string(function) + ": the address was not registered");
    case Status::kInvalid:
      return refuse(SPILLWAY_INVALID, std::string(function) + ": " + invalid);
    default:
      break;
  }
  std::string text = failure == nullptr ? "CUDA cannot be used here" : failure->text;
  if (failure != nullptr && status == Status::kOutOfMemory)
    text = verdict(*failure, Process::get().ladder()->story_of(failure->event.incident));
  // A plan move is for a step that unwinds, which a touch has none of.
  const Status told = status == Status::kUnwind ? Status::kOutOfMemory : status;
  return refuse(to_c(told), std::string(function) + ": " + text);
}

}  // namespace
}  // namespace spillway

using spillway::Process;
using spillway::refuse;

extern "C" {

spillway_status spillway_register(const spillway_strategy* strategy, spillway_strategy_id* id) {
  spillway_status status = SPILLWAY_OK;
  if (spillway::inside("spillway_register", &status)) return status;
  if (id != nullptr) *id = 0;
  std::string wrong;
  auto made = spillway::make_registered(strategy, &wrong);
  if (made == nullptr) return refuse(SPILLWAY_INVALID, "spillway_register: " + wrong);
  if (!spillway::started(&status)) return status;
  if (!Process::get().registered_allowed())
    return refuse(SPILLWAY_UNAVAILABLE, "spillway_register: SPILLWAY_STRATEGIES does not name 'registered'");
  const auto added = Process::get().ladder()->add(std::move(made));
  if (id != nullptr) *id = static_cast<spillway_strategy_id>(added);
  return SPILLWAY_OK;
}

spillway_status spillway_unregister(spillway_strategy_id id) {
  spillway_status status = SPILLWAY_OK;
  if (spillway::inside("spillway_unregister", &status)) return status;
  spillway::Ladder* ladder = Process::get().ladder();
  const bool removed = ladder != nullptr && ladder->remove(spillway::StrategyId{id});
  return removed ? SPILLWAY_OK : refuse(SPILLWAY_NOT_FOUND, "spillway_unregister: there is no such strategy");
}

spillway_strategy_id spillway_chosen_move(uint64_t* incident) {
  if (incident != nullptr) *incident = 0;
  spillway::Ladder* ladder = Process::get().ladder();
  return ladder == nullptr ? 0 : static_cast<spillway_strategy_id>(ladder->take_chosen_move(incident));
}

spillway_status spillway_block_add(void* address, uint64_t bytes) {
  spillway::Allocator* allocator = Process::get().allocator();
  spillway::BlockInfo block;
  const uint64_t at = spillway::address_of(address);
  if (allocator == nullptr || allocator->find_block(at, &block) != spillway::Status::kOk ||
      block.address != at)
    return refuse(SPILLWAY_NOT_FOUND,
                  "spillway_block_add: the address is not the start of a block of Spillway's");
  if (bytes == 0 || bytes > block.bytes)
    return refuse(SPILLWAY_INVALID,
                  "spillway_block_add: the block has " + std::to_string(block.bytes) + " bytes");
  return spillway::answer(allocator->add_block(at, bytes), "spillway_block_add",
                          "the address is registered already", nullptr);
}

spillway_status spillway_block_touch(void* address) {
  spillway_status refused = SPILLWAY_OK;
  if (spillway::inside("spillway_block_touch", &refused)) return refused;
  spillway::Allocator* allocator = Process::get().allocator();
  spillway::FailurePtr failure;
  const spillway::Status status = allocator == nullptr
                                      ? spillway::Status::kNotFound
                                      : allocator->touch_block(spillway::address_of(address), &failure);
  return spillway::answer(status, "spillway_block_touch", "", failure);
}

spillway_status spillway_block_done(void* address) {
  spillway::Allocator* allocator = Process::get().allocator();
  const spillway::Status status = allocator == nullptr ? spillway::Status::kNotFound
                                                       : allocator->done_block(spillway::address_of(address));
  return spillway::answer(status, "spillway_block_done", "there was no touch before", nullptr);
}

spillway_status spillway_block_remove(void* address) {
  spillway_status refused = SPILLWAY_OK;
  if (spillway::inside("spillway_block_remove", &refused)) return refused;
  spillway::Allocator* allocator = Process::get().allocator();
  spillway::FailurePtr failure;
  const spillway::Status status = allocator == nullptr
                                      ? spillway::Status::kNotFound
                                      : allocator->remove_block(spillway::address_of(address), &failure);
  return spillway::answer(status, "spillway_block_remove", "", failure);
}

spillway_status spillway_pin(void* address, uint64_t bytes) {
  if (address == nullptr || bytes == 0) return refuse(SPILLWAY_INVALID, "spillway_pin: nothing to pin");
  Process::get().tags().pin(spillway::address_of(address), bytes);
  if (spillway::Allocator* allocator = Process::get().allocator()) spillway::wait_for_moves(*allocator);
  return SPILLWAY_OK;
}

spillway_status spillway_unpin(void* address) {
  const bool was = Process::get().tags().unpin(spillway::address_of(address));
  return was ? SPILLWAY_OK : refuse(SPILLWAY_NOT_FOUND, "spillway_unpin: the address was not pinned");
}

spillway_status spillway_phase(const char* name) {
  Process::get().tags().set_phase(name);
  if (spillway::trace::Trace* trace = Process::get().trace()) {
    spillway::trace::Record record;
    record.kind = spillway::trace::Kind::kPhase;
    record.detail = name == nullptr ? 0 : trace->intern(name);
    Process::get().write(record);
  }
  return SPILLWAY_OK;
}

spillway_status spillway_step_begin(uint64_t step, uint64_t attempt, uint64_t plan_hash) {
  Process::get().tags().begin_step({step, attempt, plan_hash});
  if (spillway::Allocator* allocator = Process::get().allocator()) spillway::begin_step(*allocator);
  spillway::close_reserve();
  spillway::trace::Record record;
  record.kind = spillway::trace::Kind::kStepBegin;
  record.value = static_cast<uint32_t>(step);
  record.address = step;
  record.bytes = attempt;
  record.requested = plan_hash;
  record.detail = spillway::trace::clock_ns();
  Process::get().write(record);
  return SPILLWAY_OK;
}

spillway_status spillway_step_end(uint64_t step, uint64_t tokens) {
  const spillway::Tags::Step begun = Process::get().tags().current_step();
  spillway::trace::Record record;
  record.kind = spillway::trace::Kind::kStepEnd;
  record.value = static_cast<uint32_t>(step);
  record.address = step;
  record.bytes = begun.step == step ? begun.attempt : 0;
  record.requested = begun.step == step ? begun.plan_hash : 0;
  record.detail = tokens;
  Process::get().write(record);
  if (spillway::Allocator* allocator = Process::get().allocator()) allocator->sample_memory();
  return SPILLWAY_OK;
}

spillway_status spillway_plan_changed(uint64_t step, uint64_t old_plan, uint64_t new_plan, uint64_t incident,
                                      const char* reason) {
  spillway::trace::Record record;
  record.kind = spillway::trace::Kind::kPlanChange;
  record.address = step;
  record.bytes = old_plan;
  record.requested = new_plan;
  record.value = static_cast<uint32_t>(incident);
  if (spillway::trace::Trace* trace = Process::get().trace(); trace != nullptr && reason != nullptr)
    record.detail = trace->intern(reason);
  Process::get().write(record);
  return SPILLWAY_OK;
}

spillway_status spillway_allow(spillway_guarantee weakest) {
  if (weakest < SPILLWAY_BIT_EXACT || weakest > SPILLWAY_STATISTICS_CHANGE)
    return refuse(SPILLWAY_INVALID, "spillway_allow: there is no guarantee " + std::to_string(weakest));
  spillway_status status = SPILLWAY_OK;
  if (!spillway::started(&status)) return status;
  Process::get().ladder()->allow(static_cast<spillway::Guarantee>(weakest));
  return SPILLWAY_OK;
}

spillway_status spillway_limit(int32_t device, uint64_t bytes) {
  spillway_status status = SPILLWAY_OK;
  if (spillway::inside("spillway_limit", &status) || !spillway::started(&status)) return status;
  status = spillway::to_c(Process::get().allocator()->limit(spillway::DeviceId{device}, bytes));
  return status == SPILLWAY_OK ? status
                               : refuse(status, "spillway_limit: no usable device " + std::to_string(device));
}

spillway_status spillway_query(int32_t device, spillway_memory* out) {
  spillway_status status = SPILLWAY_OK;
  if (out == nullptr || out->size < 2 * sizeof(uint32_t))
    return refuse(SPILLWAY_INVALID, "spillway_query: set out->size first");
  if (!spillway::started(&status)) return status;
  spillway::Memory memory;
  status = spillway::to_c(Process::get().allocator()->memory(spillway::DeviceId{device}, &memory));
  if (status != SPILLWAY_OK)
    return refuse(status, "spillway_query: no usable device " + std::to_string(device));
  spillway::fill_memory(memory, device, out);
  return SPILLWAY_OK;
}

spillway_status spillway_reset_peaks(int32_t device) {
  spillway::Allocator* allocator = Process::get().allocator();
  if (allocator == nullptr || allocator->reset_peaks(spillway::DeviceId{device}) != spillway::Status::kOk)
    return refuse(SPILLWAY_NOT_FOUND, "spillway_reset_peaks: the device has not been used");
  return SPILLWAY_OK;
}

spillway_status spillway_query_strategies(spillway_strategy_counts* out, size_t count, size_t* filled) {
  spillway::Ladder* ladder = Process::get().ladder();
  const auto all = ladder == nullptr ? std::vector<spillway::StrategyCounts>{} : ladder->counts();
  if (filled != nullptr) *filled = all.size();
  if (count == 0 || all.empty()) return SPILLWAY_OK;
  if (out == nullptr || out->size < 2 * sizeof(uint32_t))
    return refuse(SPILLWAY_INVALID, "spillway_query_strategies: set out[0].size first");
  const size_t stride = out->size;
  for (size_t i = 0; i < std::min(count, all.size()); ++i) {
    spillway_strategy_counts entry{};
    entry.size = static_cast<uint32_t>(stride);
    entry.guarantee = static_cast<uint32_t>(all[i].guarantee);
    std::strncpy(entry.name, all[i].name.c_str(), sizeof(entry.name) - 1);
    entry.tried = all[i].tried;
    entry.useful = all[i].useful;
    entry.bytes = all[i].bytes;
    entry.microseconds = all[i].microseconds;
    std::memcpy(reinterpret_cast<char*>(out) + i * stride, &entry, std::min(stride, sizeof(entry)));
  }
  return SPILLWAY_OK;
}

const char* spillway_trace_path(void) {
  return Process::get().trace_path();
}

const char* spillway_last_error(void) {
  return spillway::last_error();
}

}  // extern "C"
