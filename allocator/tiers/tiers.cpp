// For the strategies: all devices of an allocator, or one of them.
#include "allocator/tiers/tiers.h"

#include <algorithm>
#include <system_error>

#include "allocator/accounting/process_budget.h"
#include "allocator/heap.h"

namespace spillway {

void set_pins(Allocator& allocator, Pins (*pins)()) noexcept {
  allocator.context().pins.store(pins);
}

void touch(Allocator& allocator, uint64_t address, const BlockAccess& access) noexcept {
  const AllocatorContext& context = allocator.context();
  if (Block* block = context.page_map.find(address))
    allocator.heap(DeviceId{block->device}, nullptr, nullptr)->returns().note_use(block, address, access);
}

namespace {

template <class Do>
void for_each_heap_but(Allocator& allocator, DeviceId except, Do act) {
  for (int i = 0; i < Allocator::kMaxDevices; ++i)
    if (DeviceId{i} != except && allocator.uses(DeviceId{i}))
      act(*allocator.heap(DeviceId{i}, nullptr, nullptr));
}

}  // namespace

void wait_for_moves(Allocator& allocator) noexcept {
  for_each_heap_but(allocator, DeviceId{-1}, [](DeviceHeap& heap) {
    if (heap.state().forked()) return;
    const Locked none_is_under_way(heap.state().mappings_mutex);
  });
}

uint64_t others_kept_host_bytes(Allocator& allocator, DeviceId except) noexcept {
  uint64_t bytes = 0;
  for_each_heap_but(allocator, except,
                    [&](DeviceHeap& heap) { bytes += heap.residence().kept_host_bytes(); });
  return bytes;
}

uint64_t kept_host_bytes(Allocator& allocator, DeviceId device) noexcept {
  return allocator.uses(device) ? allocator.heap(device, nullptr, nullptr)->residence().kept_host_bytes() : 0;
}

void release_host_memory(Allocator& allocator, DeviceId except) noexcept {
  for_each_heap_but(allocator, except, [](DeviceHeap& heap) { heap.residence().release_host_memory(); });
}

bool make_host_memory_ahead(Allocator& allocator, DeviceId device, uint64_t most_bytes) noexcept {
  return allocator.uses(device) &&
         allocator.heap(device, nullptr, nullptr)->residence().make_host_memory_ahead(most_bytes);
}

void set_host_memory_need(Allocator& allocator, void (*call)()) noexcept {
  allocator.context().host_memory_need.store(call);
}

uint64_t spilled_bytes(Allocator& allocator, Tier tier) noexcept {
  uint64_t bytes = 0;
  for (int i = 0; i < Allocator::kMaxDevices; ++i)
    if (allocator.uses(DeviceId{i}))
      bytes += allocator.heap(DeviceId{i}, nullptr, nullptr)->residence().spilled_bytes(tier);
  return bytes;
}

uint64_t returnable_bytes(Allocator& allocator, DeviceId device) noexcept {
  return allocator.uses(device) ? allocator.heap(device, nullptr, nullptr)->residence().returnable_bytes()
                                : 0;
}

void postpone_return(Allocator& allocator, DeviceId device) noexcept {
  if (allocator.uses(device)) allocator.heap(device, nullptr, nullptr)->residence().postpone_return();
}

uint64_t unspill(Allocator& allocator, DeviceId device) noexcept {
  return allocator.uses(device) ? allocator.heap(device, nullptr, nullptr)->residence().unspill() : 0;
}

void time_steps(Allocator& allocator, bool timed) noexcept {
  allocator.context().times_steps = timed;
}

Slowdown slowdown_of(Allocator& allocator, DeviceId device) noexcept {
  return allocator.uses(device) ? allocator.heap(device, nullptr, nullptr)->residence().slowdown()
                                : Slowdown{};
}

void hurry_returns(Allocator& allocator, DeviceId device, bool hurried) noexcept {
  if (allocator.uses(device)) allocator.heap(device, nullptr, nullptr)->residence().hurry_returns(hurried);
}

uint64_t exchangeable_bytes(Allocator& allocator, DeviceId device, const SpillPlace& where) noexcept {
  return allocator.uses(device)
             ? allocator.heap(device, nullptr, nullptr)->residence().exchangeable_bytes(where)
             : 0;
}

uint64_t exchange(Allocator& allocator, DeviceId device, const SpillPlace& where) noexcept {
  return allocator.uses(device) ? allocator.heap(device, nullptr, nullptr)->residence().exchange(where) : 0;
}

void begin_step(Allocator& allocator) noexcept {
  for (int i = 0; i < Allocator::kMaxDevices; ++i)
    if (allocator.uses(DeviceId{i})) begin_step(allocator.heap(DeviceId{i}, nullptr, nullptr)->state());
}

Peers peers_of(Allocator& allocator, DeviceId device) noexcept {
  return allocator.uses(device) ? allocator.heap(device, nullptr, nullptr)->residence().peers() : Peers{};
}

bool has_context(Allocator& allocator, DeviceId device) noexcept {
  unsigned flags = 0;
  int active = 0;
  return allocator.table().cuDevicePrimaryCtxGetState(static_cast<CUdevice>(device), &flags, &active) ==
             CUDA_SUCCESS &&
         active != 0;
}

uint64_t guest_bytes(Allocator& allocator, DeviceId device) noexcept {
  const auto index = static_cast<size_t>(device);
  return index < AllocatorContext::kMaxDevices ? allocator.context().guests[index].load() : 0;
}

uint64_t guest_room_bytes(Allocator& allocator, DeviceId device) noexcept {
  if (allocator.uses(device)) return allocator.heap(device, nullptr, nullptr)->residence().guest_room();
  const uint64_t limit = allocator.default_limit(), guests = guest_bytes(allocator, device);
  const uint64_t own = limit == 0 ? UINT64_MAX : limit - std::min(limit, guests);
  const spillway_budget* budget = allocator.budget();
  return budget == nullptr ? own : std::min(own, budget::room(*budget, static_cast<size_t>(device), 0));
}

uint64_t evict_guests(Allocator& allocator, DeviceId device, uint64_t bytes,
                      uint64_t most_host_bytes) noexcept {
  uint64_t moved = 0;
  for (int i = 0; i < Allocator::kMaxDevices && moved < bytes; ++i) {
    if (!allocator.uses(DeviceId{i}) || DeviceId{i} == device) continue;
    const uint64_t before = spilled_bytes(allocator, Tier::kHost);
    moved += allocator.heap(DeviceId{i}, nullptr, nullptr)
                 ->residence()
                 .evict(device, bytes - moved, most_host_bytes);
    const uint64_t now = spilled_bytes(allocator, Tier::kHost);
    most_host_bytes -= std::min(most_host_bytes, now > before ? now - before : 0);
  }
  return moved;
}

bool use_page_file(Allocator& allocator, const std::string& folder, uint64_t most_bytes, std::string* why_not,
                   Backoff::Now now) {
  std::unique_ptr<PageFile> file = PageFile::open(folder, most_bytes, why_not, now);
  const bool made = file != nullptr;
  if (made) allocator.context().page_file = std::move(file);
  return made;
}

std::string file_trouble(Allocator& allocator) {
  const PageFile* file = allocator.context().page_file.get();
  const int error = file == nullptr ? 0 : file->last_error();
  return error == 0 ? "" : std::generic_category().message(error);
}

uint64_t file_room_bytes(Allocator& allocator) noexcept {
  PageFile* file = allocator.context().page_file.get();
  return file == nullptr ? 0 : file->free_bytes();
}

}  // namespace spillway
