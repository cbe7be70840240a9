// The two functions and the hooks of CUDAPluggableAllocator, over the process's one core.
#include <algorithm>
#include <array>
#include <atomic>
#include <bit>
#include <stdexcept>
#include <string>
#include <utility>

#include "base/mutex.h"
#include "libtorch/allocator/core.h"
#include "libtorch/plugin/failure.h"
#include "libtorch/plugin/pools.h"
#include "spillway/libtorch/plugin.h"

namespace spillway::libtorch {
namespace {

constexpr int kMaxDevices = 64;

struct Plugin {
  PluginPools pools;
  Mutex<LockOrder::kMemoryFraction> fraction_mutex;
  std::array<uint64_t, kMaxDevices> user_limit
      SPILLWAY_GUARDED_BY(fraction_mutex){};  // before the first fraction; 0: not asked yet
};

// Never destroyed: tensors outlive static destruction.
Plugin& plugin() {
  static auto* the_plugin = new Plugin();
  return *the_plugin;
}

// The core is loaded at the first use, by whichever function that is.
void load_once() {
  static const std::string error = load_core();
  if (!error.empty()) throw std::runtime_error("Spillway's plug-in: " + error);
}

bool usable() noexcept {
  return core().table != nullptr;
}

void check(spillway_status status, const char* what) {
  if (status != SPILLWAY_OK) throw std::runtime_error(std::string(what) + ": " + core().last_error());
}

// A run of adjacent blocks, which grows until it is the one around `address`.
struct Extent {
  uint64_t address;
  uint64_t begin = 0, end = 0;
  uint64_t pool = 0;
  bool holds() const { return begin <= address && address < end; }
};

void extend(void* context, const spillway_block_info* block) {
  auto& extent = *static_cast<Extent*>(context);
  const bool adjacent = block->address == extent.end && block->pool == extent.pool;
  if (!adjacent && extent.holds()) return;
  if (!adjacent) extent.begin = block->address;
  extent.end = block->address + block->bytes;
  extent.pool = block->pool;
}

void limit_to(double fraction, int device) {
  if (!(fraction >= 0 && fraction <= 1) || device < 0 || device >= kMaxDevices)
    throw std::invalid_argument("a memory fraction of " + std::to_string(fraction) + " for device " +
                                std::to_string(device) +
                                ": it is between 0 and 1, for a device that there is");
  const spillway_memory memory = memory_of(device);
  const Locked lock(plugin().fraction_mutex);
  // A fraction never lifts the limit that the user set.
  uint64_t& user_limit = plugin().user_limit[static_cast<size_t>(device)];
  if (user_limit == 0) user_limit = memory.limit;
  constexpr uint64_t kSmallestLimit = 1;  // 0 would mean no limit
  const auto bytes = static_cast<uint64_t>(fraction * static_cast<double>(memory.device_bytes));
  check(core().limit(device, std::max(std::min(bytes, user_limit), kSmallestLimit)), "memory fraction");
}

}  // namespace
}  // namespace spillway::libtorch

using namespace spillway::libtorch;

extern "C" {

void* spillway_plugin_allocate(size_t bytes, int device, CUstream_st* stream) {
  load_once();
  spillway_failure failure;  // filled only when there is one
  failure.size = sizeof failure;
  void* address = nullptr;
  const spillway_status status =
      core().table->allocate(device, std::bit_cast<uint64_t>(stream), plugin().pools.route(device, stream),
                             bytes, &address, &failure);
  if (status != SPILLWAY_OK) throw_failure(status, failure);
  return address;
}

void spillway_plugin_free(void* address, size_t, int, CUstream_st*) {
  if (address != nullptr && usable()) core().table->free(address, nullptr);
}

void spillway_plugin_init(int) {
  load_once();
  check(core().table->start(), "Spillway's allocator cannot start");
}

void spillway_plugin_reset(void) {
  if (!usable()) return;
  for (int device = 0; device < kMaxDevices; ++device) core().table->empty_cache(device, SPILLWAY_EVERY_POOL);
}

void spillway_plugin_memory_fraction(double fraction, int device) {
  load_once();
  limit_to(fraction, device);
}

void* spillway_plugin_base_alloc(void* address, size_t* bytes) {
  spillway_block_info block{};
  if (!usable() || core().table->find_block(address, &block) != SPILLWAY_OK) return address;
  Extent extent{.address = block.address};
  core().table->blocks(block.device, &extend, &extent);
  if (!extent.holds()) return address;
  if (bytes != nullptr) *bytes = extent.end - extent.begin;
  return std::bit_cast<void*>(extent.begin);
}

void spillway_plugin_record_stream(void* address, CUstream_st* stream) {
  if (address != nullptr && usable()) core().table->record_stream(address, std::bit_cast<uint64_t>(stream));
}

void spillway_plugin_begin_allocate_to_pool(int device, SpillwayPoolId pool, SpillwayStreamFilter filter) {
  load_once();
  plugin().pools.begin(device, pool, std::move(filter));
}

void spillway_plugin_end_allocate_to_pool(int device, SpillwayPoolId pool) {
  plugin().pools.end(device, pool);
}

void spillway_plugin_release_pool(int device, SpillwayPoolId pool) {
  if (usable()) plugin().pools.release(device, pool);
}

}  // extern "C"
