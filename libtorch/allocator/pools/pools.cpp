#include "libtorch/allocator/pools/pools.h"

#include <algorithm>

#include "libtorch/allocator/core.h"

namespace spillway::libtorch {
namespace {

// Numbers are never used twice: blocks of a pool may outlive it.
std::atomic<uint64_t> last_number{0};

}  // namespace

Pools::Pool& Pools::pool(Id id) {
  Pool& pool = pools_[id];
  if (pool.number == 0) pool.number = last_number.fetch_add(1) + 1;
  return pool;
}

Pools::Pool& Pools::known(Id id, const char* function) {
  const auto found = pools_.find(id);
  TORCH_CHECK(found != pools_.end(), function, ": device ", device_, " has no memory pool (", id.first, ", ",
              id.second, ")");
  return found->second;
}

void Pools::change(Pool& pool, uint32_t flags) {
  if (pool.flags == flags) return;
  const spillway_status status = core().table->set_pool(device_, pool.number, flags);
  TORCH_CHECK(status == SPILLWAY_OK, "a memory pool cannot be changed: ", core().last_error());
  pool.flags = flags;
}

void Pools::add_user(Id id, NestedPool::Source source, NestedPool::Owner owner) {
  const Locked lock(mutex_);
  const bool fresh = pools_.find(id) == pools_.end();
  TORCH_CHECK(fresh || source == nullptr,
              "createOrIncrefPool: the memory pool exists, and takes no other allocator now");
  Pool& pool = this->pool(id);
  ++pool.users;
  if (source == nullptr) return;
  nested_[pool.number] =
      std::make_shared<NestedPool>(device_, pool.number, std::move(source), std::move(owner));
  nests_ = true;
}

Pools::Nested Pools::nested(uint64_t number) {
  if (!nests_.load(std::memory_order_acquire)) return nullptr;
  const Locked lock(mutex_);
  const auto found = nested_.find(number);
  return found == nested_.end() ? nullptr : found->second;
}

std::vector<Pools::Nested> Pools::all_nested() {
  if (!nests_.load(std::memory_order_acquire)) return {};
  std::vector<Nested> all;
  {
    const Locked lock(mutex_);
    for (const auto& [number, nested] : nested_) all.push_back(nested);
  }
  const auto gone =
      std::stable_partition(all.begin(), all.end(), [](const Nested& nested) { return !nested->gone(); });
  if (gone != all.end()) forget({gone, all.end()});
  all.erase(gone, all.end());
  return all;
}

void Pools::forget(const std::vector<Nested>& gone) {
  const Locked lock(mutex_);
  for (const Nested& nested : gone) nested_.erase(nested->number());
  nests_ = !nested_.empty();
}

void Pools::remove_user(Id id) {
  if (const Nested last = remove_user_of(id)) last->release();
}

Pools::Nested Pools::remove_user_of(Id id) {
  const Locked lock(mutex_);
  Pool& pool = known(id, "releasePool");
  TORCH_CHECK(pool.users > 0, "releasePool: a memory pool was released more often than it was taken");
  if (--pool.users != 0) return nullptr;
  const Nested nested = nested_of(pool);
  if (nested == nullptr) change(pool, pool.flags | SPILLWAY_POOL_RELEASED);
  released_.push_back({pool.number, id, pool.flags});
  if (released_.size() > kReleasedNames) released_.pop_front();
  pools_.erase(id);
  return nested;
}

int Pools::users(Id id) {
  const Locked lock(mutex_);
  const auto found = pools_.find(id);
  return found == pools_.end() ? 0 : found->second.users;
}

void Pools::begin(Id id, Filter filter) {
  const Locked lock(mutex_);
  const bool routed =
      std::any_of(routes_.begin(), routes_.end(), [&](const auto& it) { return it.first == id; });
  TORCH_CHECK(!routed, "beginAllocateToPool: requests already go to this memory pool");
  ++pool(id).users;
  routes_.emplace_back(id, std::move(filter));
  routing_.store(true, std::memory_order_release);
}

void Pools::end(Id id) {
  const Locked lock(mutex_);
  const auto found =
      std::find_if(routes_.begin(), routes_.end(), [&](const auto& it) { return it.first == id; });
  TORCH_CHECK(found != routes_.end(), "endAllocateToPool: no request goes to this memory pool");
  routes_.erase(found);
  routing_.store(!routes_.empty(), std::memory_order_release);
}

void Pools::set_lends(Id id, bool lends) {
  const auto flags = [lends](uint32_t now) {
    return lends ? now | SPILLWAY_POOL_LENDS : now & ~uint32_t{SPILLWAY_POOL_LENDS};
  };
  if (const Nested nested = change_unless_nested(id, flags)) nested->set_lends(lends);
}

void Pools::set_whole_pages(Id id) {
  const auto flags = [](uint32_t now) {
    return now | SPILLWAY_POOL_WHOLE_PAGES | SPILLWAY_POOL_SINGLE_HANDLE;
  };
  const Nested nested = change_unless_nested(id, flags);
  if (nested != nullptr)
    nested->set_whole();
  else
    singles_ = true;
}

template <class Flags>
Pools::Nested Pools::change_unless_nested(Id id, Flags flags) {
  const Locked lock(mutex_);
  Pool& pool = this->pool(id);
  const Nested nested = nested_of(pool);
  if (nested == nullptr) change(pool, flags(pool.flags));
  return nested;
}

Pools::Nested Pools::nested_of(const Pool& pool) const {
  const auto found = nested_.find(pool.number);
  return found == nested_.end() ? nullptr : found->second;
}

uint64_t Pools::find_route(cudaStream_t stream) {
  const Locked lock(mutex_);
  for (auto route = routes_.rbegin(); route != routes_.rend(); ++route)  // the innermost first
    if (route->second(stream)) return pools_.at(route->first).number;
  return 0;
}

uint64_t Pools::number_of(Id id) {
  const Locked lock(mutex_);
  const auto found = pools_.find(id);
  return found == pools_.end() ? 0 : found->second.number;
}

Pools::Id Pools::id_of(uint64_t number) {
  if (number == 0) return {0, 0};
  const Locked lock(mutex_);
  for (const auto& [id, pool] : pools_)
    if (pool.number == number) return id;
  for (const Released& released : released_)
    if (released.number == number) return released.id;
  return {0, 0};
}

// The newest, should an id have come twice.
uint64_t Pools::released_number_of(Id id) {
  const Locked lock(mutex_);
  const auto found = std::find_if(released_.rbegin(), released_.rend(),
                                  [&](const Released& released) { return released.id == id; });
  return found == released_.rend() ? 0 : found->number;
}

bool Pools::is_single(uint64_t number) {
  if (!singles_.load(std::memory_order_acquire)) return false;
  const Locked lock(mutex_);
  uint32_t flags = 0;
  for (const auto& [id, pool] : pools_)
    if (pool.number == number) flags = pool.flags;
  for (const Released& released : released_)
    if (released.number == number) flags = released.flags;
  return (flags & SPILLWAY_POOL_SINGLE_HANDLE) != 0;
}

}  // namespace spillway::libtorch
