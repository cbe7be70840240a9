// The table that the LibTorch shim and the preloaded library use.
#include "strategies/core/core.h"

#include <algorithm>
#include <atomic>
#include <cstring>

#include "allocator/segments/sources.h"
#include "allocator/streams/program_streams.h"
#include "allocator/tiers/tiers.h"
#include "strategies/budget/budget.h"
#include "strategies/core/pools.h"
#include "strategies/core/process.h"
#include "strategies/framework/call_origin.h"
#include "strategies/processes/process_service.h"
#include "strategies/unspill_when_due.h"

namespace spillway {
namespace {

uint64_t address_of(const void* pointer) {
  return reinterpret_cast<uint64_t>(pointer);
}

spillway_status core_start() {
  return Process::get().start();
}

[[gnu::noinline]] void take_stack(void* address, uint64_t bytes) {
  SiteRecorder* sites = Process::get().sites();
  if (sites == nullptr) return Sampler::rest();
  sites->allocated(address_of(address), bytes);
}

// Not inlined: the failure's text and equation are no part of the hot path.
[[gnu::noinline]] spillway_status explain(Status status, const Failure& failure, spillway_failure* out) {
  Ladder& ladder = *Process::get().ladder();
  const OomEvent& event = failure.event;
  if (SiteRecorder* sites = Process::get().sites(); sites != nullptr && event.incident != 0)
    sites->failed(event.device, event.incident);
  std::string text = failure.text;
  if (event.incident != 0 && (status == Status::kOutOfMemory || status == Status::kUnwind))
    text = verdict(failure, ladder.story_of(event.incident));
  refuse(to_c(status), text);
  if (out == nullptr || out->size < offsetof(spillway_failure, text) + 1) return to_c(status);
  spillway_failure filled{};
  filled.size = out->size;
  filled.device = static_cast<int32_t>(event.device);
  filled.incident = event.incident;
  filled.requested_bytes = event.requested_bytes;
  filled.rounded_bytes = event.rounded_bytes;
  filled.largest_extent_bytes = event.largest_extent_bytes;
  filled.memory.size = sizeof(spillway_memory);
  fill_memory(failure.memory, filled.device, &filled.memory);
  if (status == Status::kUnwind)
    filled.move = static_cast<spillway_strategy_id>(ladder.move_of(event.incident));
  std::strncpy(filled.text, text.c_str(), sizeof(filled.text) - 1);
  std::memcpy(out, &filled, std::min<size_t>(out->size, sizeof(filled)));
  return to_c(status);
}

spillway_status core_allocate_padded(int32_t device, uint64_t stream, uint64_t pool, uint64_t bytes,
                                     uint64_t padded, void** address, spillway_failure* failure) {
  if (address == nullptr) return refuse(SPILLWAY_INVALID, "allocate: address is null");
  *address = nullptr;
  Allocator* allocator = Process::get().allocator();
  if (allocator == nullptr) [[unlikely]] {
    if (const spillway_status status = core_start(); status != SPILLWAY_OK) return status;
    allocator = Process::get().allocator();
  }
  uint64_t at = 0;
  FailurePtr detail;
  const Request request{bytes, StreamId{stream}, pool, padded};
  const Status status = allocator->allocate(DeviceId{device}, request, &at, &detail);
  if (status == Status::kUnwind) [[unlikely]]
    open_reserve();
  if (status != Status::kOk) [[unlikely]]
    return explain(status, *detail, failure);
  *address = reinterpret_cast<void*>(at);
  if (Sampler::due(bytes)) [[unlikely]]
    take_stack(*address, bytes);
  return SPILLWAY_OK;
}

spillway_status core_allocate(int32_t device, uint64_t stream, uint64_t pool, uint64_t bytes, void** address,
                              spillway_failure* failure) {
  return core_allocate_padded(device, stream, pool, bytes, 0, address, failure);
}

spillway_status not_a_block() {
  return refuse(SPILLWAY_NOT_FOUND, "the address is no live block of Spillway's");
}

spillway_status core_free(void* address, spillway_block_info* freed) {
  Allocator* allocator = Process::get().allocator();
  if (allocator == nullptr) [[unlikely]]
    return not_a_block();
  FreedBlock block;
  if (allocator->free(address_of(address), &block) != Status::kOk) [[unlikely]]
    return not_a_block();
  if (freed != nullptr)
    *freed = {.address = address_of(address),
              .bytes = block.bytes,
              .requested_bytes = block.requested_bytes,
              .stream = static_cast<uint64_t>(block.stream),
              .pool = block.pool,
              .state = static_cast<uint32_t>(BlockUse::kLive),
              .device = static_cast<int32_t>(block.device),
              .segment = 0};
  return SPILLWAY_OK;
}

spillway_status core_record_stream(void* address, uint64_t stream) {
  Allocator* allocator = Process::get().allocator();
  if (allocator == nullptr) return not_a_block();
  const Status status = allocator->record_stream(address_of(address), StreamId{stream});
  return status == Status::kOk ? SPILLWAY_OK : not_a_block();
}

spillway_block_info to_c(const BlockInfo& block) {
  spillway_block_info out{};
  out.address = block.address;
  out.bytes = block.bytes;
  out.requested_bytes = block.requested_bytes;
  out.stream = static_cast<uint64_t>(block.stream);
  out.pool = block.pool;
  out.state = static_cast<uint32_t>(block.use);
  out.device = static_cast<int32_t>(block.device);
  out.segment = block.segment;
  return out;
}

spillway_status core_find_block(const void* address, spillway_block_info* out) {
  Allocator* allocator = Process::get().allocator();
  BlockInfo block;
  if (allocator == nullptr || allocator->find_block(address_of(address), &block) != Status::kOk)
    return not_a_block();
  if (out != nullptr) *out = to_c(block);
  return SPILLWAY_OK;
}

uint64_t core_empty_cache(int32_t device, uint64_t pool) {
  Allocator* allocator = Process::get().allocator();
  if (allocator == nullptr) return 0;
  return allocator->empty_cache(DeviceId{device}, pool) + empty_sources(*allocator, DeviceId{device}, pool);
}

static_assert(uint32_t{SPILLWAY_POOL_RELEASED} == kPoolReleased &&
              uint32_t{SPILLWAY_POOL_LENDS} == kPoolLends &&
              uint32_t{SPILLWAY_POOL_WHOLE_PAGES} == kPoolWholePages &&
              uint32_t{SPILLWAY_POOL_SINGLE_HANDLE} == kPoolSingleHandle &&
              SPILLWAY_EVERY_POOL == kEveryPool);

spillway_status core_set_pool(int32_t device, uint64_t pool, uint32_t flags) {
  Allocator* allocator = Process::get().allocator();
  if (allocator == nullptr) return refuse(SPILLWAY_INVALID, "set_pool: Spillway is not started");
  const Status status = allocator->set_pool(DeviceId{device}, pool, flags);
  return status == Status::kOk ? SPILLWAY_OK
                               : refuse(to_c(status), "set_pool: no such device, or no number for a pool");
}

spillway_status core_set_segment_source(int32_t device, uint64_t pool,
                                        const spillway_segment_source* source) {
  if (source == nullptr || source->size < sizeof *source)
    return refuse(SPILLWAY_INVALID, "set_segment_source: a null argument, or source->size is not set");
  Allocator* allocator = Process::get().allocator();
  if (allocator == nullptr) {
    source->end(source->context);
    return refuse(SPILLWAY_INVALID, "set_segment_source: Spillway is not started");
  }
  const Status status = set_source(*allocator, DeviceId{device}, pool, *source);
  if (status == Status::kOk) return SPILLWAY_OK;
  return refuse(to_c(status), "set_segment_source: the pool has served a request, or has a source already");
}

spillway_sums to_c(const Sums& sums) {
  return {sums.count, sums.bytes, sums.requested};
}

spillway_usage_levels to_c(const UsageLevels& levels) {
  return {to_c(levels.live),   to_c(levels.peak_live),   to_c(levels.allocated),  to_c(levels.freed),
          to_c(levels.active), to_c(levels.peak_active), to_c(levels.deactivated)};
}

void core_usage(int32_t device, spillway_usage* out) {
  Allocator* allocator = Process::get().allocator();
  const DeviceUsage usage = allocator == nullptr ? DeviceUsage{} : allocator->usage(DeviceId{device});
  *out = {to_c(usage.all), to_c(usage.small), to_c(usage.large), usage.maps, usage.unmaps};
}

void core_reset_totals(int32_t device) {
  if (Allocator* allocator = Process::get().allocator()) allocator->reset_totals(DeviceId{device});
}

spillway_status core_blocks(int32_t device, void (*visit)(void*, const spillway_block_info*), void* context) {
  Allocator* allocator = Process::get().allocator();
  std::vector<BlockInfo> blocks;
  if (visit == nullptr) return refuse(SPILLWAY_INVALID, "blocks: visit is null");
  if (allocator == nullptr || allocator->blocks(DeviceId{device}, &blocks) != Status::kOk)
    return refuse(SPILLWAY_NOT_FOUND, "blocks: the device has not been used");
  for (const BlockInfo& block : blocks) {
    const spillway_block_info info = to_c(block);
    visit(context, &info);
  }
  return SPILLWAY_OK;
}

uint64_t core_fail_request(uint64_t n, int persistent) {
  Allocator* allocator = Process::get().allocator();
  if (allocator == nullptr) {
    if (core_start() != SPILLWAY_OK) return 0;
    allocator = Process::get().allocator();
  }
  return allocator->fail_request(n, persistent != 0);
}

uint64_t core_requests() {
  Allocator* allocator = Process::get().allocator();
  return allocator == nullptr ? 0 : allocator->requests();
}

int core_check_invariants() {
  Allocator* allocator = Process::get().allocator();
  std::string broken;
  if (allocator == nullptr || allocator->check_invariants(&broken)) return 1;
  refuse(SPILLWAY_INVALID, broken);
  return 0;
}

spillway_status core_allocate_at(int32_t device, uint64_t stream, uint64_t pool, uint64_t bytes,
                                 void* address) {
  Allocator* allocator = Process::get().allocator();
  const Request request{bytes, StreamId{stream}, pool};
  const Status status = allocator == nullptr
                            ? Status::kNotFound
                            : allocator->allocate_at(DeviceId{device}, request, address_of(address));
  if (status == Status::kOk) return SPILLWAY_OK;
  return refuse(to_c(status), "allocate_at: the pool has no free bytes at this address on this stream");
}

static_assert(SPILLWAY_CHANGE_ALLOCATED == static_cast<int>(Change::kAllocated) &&
              SPILLWAY_CHANGE_FREE_REQUESTED == static_cast<int>(Change::kFreeRequested) &&
              SPILLWAY_CHANGE_FREED == static_cast<int>(Change::kFreed) &&
              SPILLWAY_CHANGE_MAPPED == static_cast<int>(Change::kMapped) &&
              SPILLWAY_CHANGE_UNMAPPED == static_cast<int>(Change::kUnmapped));

class CObserver final : public Observer {
 public:
  void observe(Change change, const BlockInfo& block) noexcept override {
    const auto call = call_.load(std::memory_order_acquire);
    const spillway_block_info info = to_c(block);
    if (call != nullptr) call(static_cast<uint32_t>(change), &info);
  }
  void set(void (*call)(uint32_t, const spillway_block_info*)) { call_.store(call); }

 private:
  std::atomic<void (*)(uint32_t, const spillway_block_info*)> call_{nullptr};
};

void core_watch(void (*saw)(uint32_t, const spillway_block_info*)) {
  static auto* const observer = new CObserver;  // never destroyed: calls may come until the end
  if (core_start() != SPILLWAY_OK) return;
  observer->set(saw);
  Process::get().allocator()->set_observer(saw == nullptr ? nullptr : observer);
}

spillway_status core_share(const void* address, void (*visit)(void*, const spillway_shared_page*),
                           void* context, uint64_t* offset) {
  Allocator* allocator = Process::get().allocator();
  if (visit == nullptr || offset == nullptr) return refuse(SPILLWAY_INVALID, "share: a null argument");
  if (allocator == nullptr) return not_a_block();
  SharedBlock block;
  std::string text;
  const Status status = allocator->share(address_of(address), &block, &text);
  if (status != Status::kOk) return refuse(to_c(status), text);
  for (const SharedPage& page : block.pages) {
    const spillway_shared_page out{page.bytes, page.serial, page.descriptor};
    visit(context, &out);
  }
  *offset = block.offset;
  return SPILLWAY_OK;
}

int core_shared_descriptor(uint64_t serial) {
  Allocator* allocator = Process::get().allocator();
  return allocator == nullptr ? -1 : allocator->shared_descriptor(serial);
}

spillway_status core_map_shared(int32_t device, const spillway_shared_page* pages, uint64_t count,
                                void** address) {
  if (address == nullptr || pages == nullptr) return refuse(SPILLWAY_INVALID, "map_shared: a null argument");
  Allocator* allocator = Process::get().allocator();
  if (allocator == nullptr) return refuse(SPILLWAY_INVALID, "map_shared: Spillway is not started");
  std::vector<SharedPage> shared;
  shared.reserve(count);
  for (uint64_t i = 0; i < count; ++i)
    shared.push_back({pages[i].bytes, pages[i].serial, pages[i].descriptor});
  uint64_t at = 0;
  std::string text;
  const Status status = allocator->map_shared(DeviceId{device}, shared, &at, &text);
  if (status != Status::kOk) return refuse(to_c(status), text);
  *address = reinterpret_cast<void*>(at);
  return SPILLWAY_OK;
}

spillway_status core_unmap_shared(void* address) {
  Allocator* allocator = Process::get().allocator();
  const bool found = allocator != nullptr && allocator->unmap_shared(address_of(address)) == Status::kOk;
  return found ? SPILLWAY_OK : refuse(SPILLWAY_NOT_FOUND, "nothing of another process is mapped there");
}

spillway_status core_grant(int32_t owner, int32_t peer) {
  Allocator* allocator = Process::get().allocator();
  if (allocator == nullptr) return refuse(SPILLWAY_INVALID, "grant: Spillway is not started");
  std::string text;
  const Status status = allocator->grant(DeviceId{owner}, DeviceId{peer}, &text);
  return status == Status::kOk ? SPILLWAY_OK : refuse(to_c(status), text);
}

spillway_status core_rescue(const spillway_driver_request* request, int (*try_again)(void*), void* context) {
  if (request == nullptr || request->size < sizeof *request || try_again == nullptr)
    return refuse(SPILLWAY_INVALID, "rescue: a null argument, or request->size is not set");
  if (const spillway_status status = core_start(); status != SPILLWAY_OK) return status;
  return Process::get().driver_callers()->rescue(*request, try_again, context);
}

spillway_status core_note_host_failure(const spillway_driver_request* request, int is_done_again,
                                       uint64_t* incident) {
  if (request == nullptr || request->size < sizeof *request)
    return refuse(SPILLWAY_INVALID, "note_host_failure: a null argument, or request->size is not set");
  if (const spillway_status status = core_start(); status != SPILLWAY_OK) return status;
  uint64_t number = 0;
  const spillway_status status =
      Process::get().driver_callers()->note_host_failure(*request, is_done_again != 0, &number);
  if (incident != nullptr) *incident = number;
  return status;
}

spillway_status core_note_framework_failure(int32_t device, uint64_t bytes) {
  if (const spillway_status status = core_start(); status != SPILLWAY_OK) return status;
  return Process::get().driver_callers()->note_framework_failure(device, bytes);
}

void core_count_incidents(spillway_incident_totals* totals) {
  Process::get().count_incidents(totals);
  // The first failure may come before Python has run another instruction after the core's start.
  Environment environment;
  std::string unread;
  if (read_environment(&environment, &unread) && takes_stacks(environment)) prepare_python_stacks();
}

spillway_status core_join_ledger(uint32_t (*captures)(void)) {
  std::string why_not;
  return ProcessService::start(captures, &why_not) ? SPILLWAY_OK : refuse(SPILLWAY_UNAVAILABLE, why_not);
}

class CGate final : public Gate {
 public:
  explicit CGate(const spillway_gate& gate) : gate_(gate) {}
  bool close(std::chrono::steady_clock::time_point deadline) noexcept override {
    const auto left = deadline - std::chrono::steady_clock::now();
    const auto us = std::chrono::duration_cast<std::chrono::microseconds>(left).count();
    return us > 0 && gate_.close(static_cast<uint64_t>(us)) != 0;
  }
  void open() noexcept override { gate_.open(); }
  uint32_t captures() noexcept override { return gate_.captures(); }
  uint64_t launches() noexcept override { return gate_.launches == nullptr ? 0 : gate_.launches(); }

 private:
  const spillway_gate gate_;
};

void core_set_gate(const spillway_gate* gate) {
  if (gate == nullptr || gate->size < sizeof *gate || core_start() != SPILLWAY_OK) return;
  Process::get().ladder()->set_gate(new CGate(*gate));  // never destroyed: a strategy may be using it
  ask_for_marks(*Process::get().allocator(), gate->begin_marks);
  Process::get().use_large_handles();
}

// Uses are of no interest where nothing could be moved.
void core_on_pressure(void (*call)(void)) {
  if (core_start() == SPILLWAY_OK && Process::get().may_spill())
    Process::get().allocator()->set_pressure(call);
}

void core_touch(const void* address, uint64_t bytes) {
  if (Allocator* allocator = Process::get().allocator()) {
    Gate* gate = Process::get().ladder()->gate();
    touch(*allocator, address_of(address), {bytes, gate == nullptr ? 0 : gate->launches()});
    unspill_now_and_then(*allocator, *Process::get().ladder(), [] { return Process::get().spill_limits(); });
  }
}

void core_mark_progress(uint64_t stream) {
  if (Allocator* allocator = Process::get().allocator()) mark_progress(*allocator, StreamId{stream});
}

void core_note_optimizer_step(const char* name) {
  trace::Trace* trace = Process::get().trace();
  if (trace == nullptr || name == nullptr) return;
  trace::Record record;
  record.kind = trace::Kind::kOptimizerStep;
  record.address = Process::get().ladder()->note_optimizer_step();
  record.detail = trace->intern(name);
  Process::get().write(record);
}

void core_name_work(void (*label)(char*, uint64_t)) {
  if (core_start() != SPILLWAY_OK) return;
  if (SiteRecorder* sites = Process::get().sites()) sites->set_label(label);
}

void core_set_collector(void (*collect)(int32_t)) {
  if (core_start() == SPILLWAY_OK) Process::get().allocator()->set_collector(collect);
}

int core_inside_framework() {
  return find_call_origin().inside_framework ? 1 : 0;
}

const spillway_core_table kTable = {
    sizeof(spillway_core_table),
    SPILLWAY_CORE_VERSION,
    core_start,
    core_allocate,
    core_free,
    core_record_stream,
    core_find_block,
    core_empty_cache,
    core_set_pool,
    core_usage,
    core_reset_totals,
    core_blocks,
    core_fail_request,
    core_requests,
    core_check_invariants,
    core_allocate_at,
    core_allocate_padded,
    core_watch,
    core_share,
    core_shared_descriptor,
    core_map_shared,
    core_unmap_shared,
    core_grant,
    core_rescue,
    core_note_host_failure,
    core_note_framework_failure,
    core_count_incidents,
    core_join_ledger,
    core_set_gate,
    core_on_pressure,
    core_touch,
    process_budget,
    core_inside_framework,
    set_pools,
    core_name_work,
    core_note_optimizer_step,
    core_set_collector,
    core_set_segment_source,
    core_mark_progress,
};

}  // namespace
}  // namespace spillway

extern "C" const spillway_core_table* spillway_core(void) {
  return &spillway::kTable;
}
