#include "interpose/account/native.h"

#include "allocator/accounting/process_budget.h"
#include "interpose/account/native_pools.h"
#include "interpose/core.h"
#include "interpose/hooks/driver_table.h"

namespace spillway::interpose {
namespace {

constexpr uint64_t kGranule = 2 << 20, kSharesGranules = 1 << 20, kSmallestUnit = 512;
constexpr uint64_t kMostBytes = uint64_t{1} << 62;  // more is refused by any driver
[[gnu::tls_model("initial-exec")]] thread_local bool over_limit = false;

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

bool is_beside(uint64_t reserve, int device, uint64_t bytes, const Asked& asked) {
  const uint64_t kept = asked.in_pool ? pool_keeps(asked.pool, device) : 0;
  if (bytes <= kept) return true;
  const uint64_t fresh = bytes - kept, free = real_free_bytes(device);
  return free >= fresh && free - fresh >= reserve;
}

// What is reserved may only be drawn by who is not PyTorch's allocator; that is asked when it matters.
bool draw(spillway_budget& budget, int device, uint64_t bytes, const Asked& asked) {
  using budget::By;
  const auto at = static_cast<size_t>(device);
  const uint64_t reserve = budget::read(budget.reserve_bytes);
  over_limit = false;
  if ((reserve == 0 || is_beside(reserve, device, bytes, asked)) &&
      budget::draw(budget, at, bytes, reserve, By::kDriverCall))
    return true;
  over_limit = budget::room(budget, at, reserve) < bytes;
  if (reserve == 0 || core()->inside_framework() != 0) return false;
  over_limit = !budget::draw(budget, at, bytes, 0, By::kDriverCall);
  return !over_limit;
}

}  // namespace

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
  refused_ = !draw(*budget_, device_, bytes_, asked);
}

// What has the same key now has taken the place of what the driver has freed.
void Draw::keep(Native kind, uint64_t key) const {
  if (bytes_ == 0) return;
  NativeEntry entry{.key = key, .bytes = bytes_, .device = device_, .kind = kind};
  if (kind == Native::kHandle)
    entry.references = 1;
  else if (real().cuCtxGetCurrent != nullptr)
    real().cuCtxGetCurrent(&entry.context);
  const HeldTable table;
  if (NativeEntry* old = table->find(kind, key)) table.drop(old);
  table.add(entry);
}

void Draw::take_back() const {
  give_back(device_, bytes_);
}

Return::Return(Native kind, uint64_t key) {
  if (!is_counting()) return;
  const HeldTable table;
  if (const NativeEntry* entry = table->find(kind, key)) seen_ = *entry;
}

void Return::finish() const {
  if (seen_.kind == Native::kNone) return;
  const HeldTable table;
  NativeEntry* entry = table->find(seen_.kind, seen_.key);
  if (entry != nullptr && entry->serial == seen_.serial) table.drop(entry);
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
