#include "interpose/native.h"

#include <pthread.h>

#include <atomic>
#include <cstring>

#include "interpose/core.h"
#include "interpose/process.h"
#include "interpose/real.h"
#include "spillway/allocator/budget.h"

namespace spillway::interpose {
namespace {

using budget::By;
constexpr uint64_t kGranule = 2 << 20, kSharesGranules = 1 << 20, kSmallestUnit = 512;
constexpr uint64_t kMostBytes = uint64_t{1} << 62;  // more is refused by any driver

pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
NativeTable table;  // these four are guarded by `lock`
uint64_t last_serial = 0, mappings = 0;
CUcontext primary[SPILLWAY_MOST_DEVICES];
pthread_mutex_t pools_lock = PTHREAD_MUTEX_INITIALIZER;  // comes before `lock`
std::atomic<bool> used_pools{false};
std::atomic<spillway_budget*> found{nullptr};
[[gnu::tls_model("initial-exec")]] thread_local bool over_limit = false;

class Locked {
 public:
  Locked() { pthread_mutex_lock(&lock); }
  ~Locked() { pthread_mutex_unlock(&lock); }
  Locked(const Locked&) = delete;
  Locked& operator=(const Locked&) = delete;
};

void in_child() {
  pthread_mutex_init(&lock, nullptr);
  pthread_mutex_init(&pools_lock, nullptr);
  used_pools.store(false);
  table.forget_all();
  mappings = 0;
  if (spillway_budget* budget = found.load()) {
    std::memset(budget->taken_bytes, 0, sizeof budget->taken_bytes);
    std::memset(budget->native_bytes, 0, sizeof budget->native_bytes);
  }
}

bool is_device(int device) {
  return device >= 0 && device < SPILLWAY_MOST_DEVICES;
}

// As the driver takes it: small allocations share granules.
uint64_t charged(uint64_t bytes) {
  return aligned(bytes, bytes < kSharesGranules ? kSmallestUnit : kGranule);
}

uint64_t real_free_bytes(int device) {
  size_t free = 0, total = 0;
  const bool known = device == current_device() && real().cuMemGetInfo != nullptr &&
                     real().cuMemGetInfo(&free, &total) == CUDA_SUCCESS;
  return known ? free : UINT64_MAX;
}

// What is reserved may only be drawn by who is not PyTorch's allocator; that is asked when it matters.
bool draw(spillway_budget& budget, int device, uint64_t bytes, bool in_pool) {
  const auto at = static_cast<size_t>(device);
  const uint64_t reserve = budget::read(budget.reserve_bytes);
  bool beside = true;
  if (reserve != 0 && !in_pool) {
    const uint64_t free = real_free_bytes(device);
    beside = free >= bytes && free - bytes >= reserve;
  }
  over_limit = false;
  if (beside && budget::draw(budget, at, bytes, reserve, By::kDriverCall)) return true;
  over_limit = budget::room(budget, at, reserve) < bytes;
  if (reserve == 0 || core()->inside_framework() != 0) return false;
  over_limit = !budget::draw(budget, at, bytes, 0, By::kDriverCall);
  return !over_limit;
}

void give_back(int device, uint64_t bytes) {
  spillway_budget* budget = found.load(std::memory_order_relaxed);
  if (budget != nullptr && is_device(device) && bytes != 0)
    budget::give_back(*budget, static_cast<size_t>(device), bytes, By::kDriverCall);
}

void drop(NativeEntry* entry) {
  give_back(entry->device, entry->bytes);
  table.remove(entry);
}

// What has the same key now has taken the place of what the driver has freed.
void put(NativeEntry entry) {
  const Locked locked;
  if (NativeEntry* old = table.find(entry.kind, entry.key)) drop(old);
  entry.serial = ++last_serial;
  if (!table.add(entry)) give_back(entry.device, entry.bytes);
}

void drop_if_unused(NativeEntry* page) {
  if (page->references == 0 && page->mappings == 0) drop(page);
}

// Its bytes are the page's, which goes with its last handle and mapping.
void unmap(NativeEntry* mapping) {
  const NativeEntry gone = *mapping;
  table.remove(mapping);
  --mappings;
  NativeEntry* page = table.find(Native::kHandle, gone.page);
  if (page == nullptr || page->serial != gone.page_serial || page->mappings == 0) return;
  --page->mappings;
  drop_if_unused(page);
}

}  // namespace

spillway_budget* native_budget() {
  spillway_budget* budget = found.load(std::memory_order_acquire);
  if (budget != nullptr || mode() == Mode::kObserve) [[likely]]
    return budget;
  const spillway_core_table* core_table = core();
  budget = core_table == nullptr ? nullptr : core_table->budget();
  if (budget == nullptr) {
    static std::atomic<bool> said{false};
    if (core_table != nullptr && !said.exchange(true)) say("no limit is kept: ", core_error());
    return nullptr;
  }
  spillway_budget* nothing = nullptr;
  if (found.compare_exchange_strong(nothing, budget)) pthread_atfork(nullptr, nullptr, in_child);
  return budget;
}

int current_device() {
  CUdevice device = 0;
  return real().cuCtxGetDevice != nullptr && real().cuCtxGetDevice(&device) == CUDA_SUCCESS ? device : -1;
}

bool was_over_limit() {
  return over_limit;
}

Draw::Draw(const Asked& asked) {
  over_limit = false;
  if (asked.on_host || asked.bytes == 0 || asked.bytes > kMostBytes) return;
  budget_ = native_budget();
  if (budget_ == nullptr) return;
  device_ = asked.device >= 0 ? asked.device : current_device();
  if (!is_device(device_)) return;
  bytes_ = charged(asked.bytes);
  refused_ = !draw(*budget_, device_, bytes_, asked.in_pool);
}

void Draw::keep(Native kind, uint64_t key) const {
  if (bytes_ == 0) return;
  NativeEntry entry{.key = key, .bytes = bytes_, .device = device_, .kind = kind};
  if (kind == Native::kHandle)
    entry.references = 1;
  else if (real().cuCtxGetCurrent != nullptr)
    real().cuCtxGetCurrent(&entry.context);
  put(entry);
}

void Draw::take_back() const {
  give_back(device_, bytes_);
}

Return::Return(Native kind, uint64_t key) {
  const Locked locked;
  if (const NativeEntry* entry = table.find(kind, key)) seen_ = *entry;
}

void Return::finish() const {
  if (seen_.kind == Native::kNone) return;
  const Locked locked;
  NativeEntry* entry = table.find(seen_.kind, seen_.key);
  if (entry != nullptr && entry->serial == seen_.serial) drop(entry);
}

uint64_t serial_of(Native kind, uint64_t key) {
  const Locked locked;
  const NativeEntry* entry = table.find(kind, key);
  return entry == nullptr ? 0 : entry->serial;
}

void page_released(uint64_t handle, uint64_t serial) {
  const Locked locked;
  NativeEntry* page = table.find(Native::kHandle, handle);
  if (page == nullptr || page->serial != serial || page->references == 0) return;
  --page->references;
  drop_if_unused(page);
}

void page_retained(uint64_t handle) {
  const Locked locked;
  if (NativeEntry* page = table.find(Native::kHandle, handle)) ++page->references;
}

void page_mapped(uint64_t address, uint64_t bytes, uint64_t handle) {
  const Locked locked;
  if (NativeEntry* old = table.find(Native::kMapping, address)) unmap(old);
  NativeEntry* page = table.find(Native::kHandle, handle);
  if (page == nullptr) return;
  ++page->mappings;
  const NativeEntry mapping{.key = address,
                            .page = handle,
                            .page_serial = page->serial,
                            .mapped_bytes = bytes,
                            .kind = Native::kMapping};
  mappings += table.add(mapping);
}

// Whole mappings, one behind the other; between them may be some of pages that are not counted.
void range_unmapped(uint64_t address, uint64_t bytes) {
  const Locked locked;
  for (uint64_t at = address; mappings != 0 && at - address < bytes;) {
    NativeEntry* mapping = table.find(Native::kMapping, at);
    at += mapping == nullptr ? kGranule : mapping->mapped_bytes;
    if (mapping != nullptr) unmap(mapping);
  }
}

void note_pool(uint64_t pool, int device) {
  const Locked locked;
  if (NativeEntry* known = table.find(Native::kPool, pool))
    known->device = device;
  else
    table.add({.key = pool, .device = device, .kind = Native::kPool});
}

CUresult destroy_pool(CUmemoryPool pool, CUresult (*destroy)(CUmemoryPool)) {
  pthread_mutex_lock(&pools_lock);
  const CUresult result = destroy(pool);
  if (result == CUDA_SUCCESS) {
    const Locked locked;
    if (NativeEntry* known = table.find(Native::kPool, reinterpret_cast<uint64_t>(pool))) table.remove(known);
  }
  pthread_mutex_unlock(&pools_lock);
  return result;
}

int pools_used() {
  return used_pools.load(std::memory_order_relaxed) ? 1 : 0;
}

void note_pool_used() {
  if (!used_pools.load(std::memory_order_relaxed)) used_pools.store(true, std::memory_order_relaxed);
}

// What is visited may call the driver, but makes and destroys no pool. Others that are made meanwhile may be
// left out.
void visit_pools(int32_t device, void (*visit)(void* context, uint64_t pool), void* context) {
  constexpr size_t kMost = 256;
  uint64_t pools[kMost];
  size_t count = 0;
  pthread_mutex_lock(&pools_lock);
  {
    const Locked locked;
    table.each([&](const NativeEntry& entry) {
      if (entry.kind == Native::kPool && entry.device == device && count < kMost) pools[count++] = entry.key;
    });
  }
  for (size_t i = 0; i < count; ++i) visit(context, pools[i]);
  pthread_mutex_unlock(&pools_lock);
}

Asked in_pool(uint64_t bytes, uint64_t pool) {
  const Locked locked;
  const NativeEntry* known = table.find(Native::kPool, pool);
  if (known == nullptr) return {.bytes = bytes, .in_pool = true};
  return {.bytes = bytes, .device = known->device, .on_host = known->device < 0, .in_pool = true};
}

void note_primary_context(CUcontext context, CUdevice device) {
  if (!is_device(device)) return;
  const Locked locked;
  primary[device] = context;
}

void context_gone(CUcontext context) {
  if (context == nullptr) return;
  const Locked locked;
  table.remove_if([context](const NativeEntry& entry) {
    if (entry.context != context) return false;
    give_back(entry.device, entry.bytes);
    return true;
  });
}

void look_at_primary_context(CUdevice device) {
  unsigned flags = 0;
  int active = 1;
  if (!is_device(device) || real().cuDevicePrimaryCtxGetState == nullptr) return;
  if (real().cuDevicePrimaryCtxGetState(device, &flags, &active) != CUDA_SUCCESS || active != 0) return;
  CUcontext context = nullptr;
  {
    const Locked locked;
    context = primary[device];
  }
  context_gone(context);
}

void tell_within_budget(size_t* free, size_t* total, int device) {
  const spillway_budget* budget = native_budget();
  if (budget == nullptr || !is_device(device)) return;
  const uint64_t limit = budget::read(budget->limit_bytes), reserve = budget::read(budget->reserve_bytes);
  if (total != nullptr && *total > limit) *total = limit;
  if (free == nullptr) return;
  const uint64_t room = budget::room(*budget, static_cast<size_t>(device), reserve);
  *free = *free > reserve ? *free - reserve : 0;
  if (*free > room) *free = room;
}

}  // namespace spillway::interpose
