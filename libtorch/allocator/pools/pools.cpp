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

void Pools::set_flags(uint64_t number, uint32_t flags) const {
  const spillway_status status = core().table->set_pool(device_, number, flags);
  TORCH_CHECK(status == SPILLWAY_OK, "a memory pool cannot be changed: ", core().last_error());
}

void Pools::change(Id id, uint32_t added, uint32_t removed) {
  const Locked lock(mutex_);
  Pool& pool = this->pool(id);
  const uint32_t flags = (pool.flags | added) & ~removed;
  if (pool.flags == flags) return;
  set_flags(pool.number, flags);
  pool.flags = flags;
}

void Pools::add_user(Id id, PoolAllocator own) {
  const Locked lock(mutex_);
  const bool fresh = pools_.find(id) == pools_.end();
  TORCH_CHECK(fresh || own == nullptr,
              "createOrIncrefPool: the memory pool exists, and takes no other allocator now");
  Pool& pool = this->pool(id);
  ++pool.users;
  if (own == nullptr) return;
  const spillway_segment_source source = source_of(device_, std::move(own));
  const spillway_status status = core().table->set_segment_source(device_, pool.number, &source);
  TORCH_CHECK(status == SPILLWAY_OK, "createOrIncrefPool: ", core().last_error());
}

// Outside of the lock, because the pool's own allocator may end with it.
void Pools::remove_user(Id id) {
  if (const Pool last = remove_user_of(id); last.number != 0)
    set_flags(last.number, last.flags | SPILLWAY_POOL_RELEASED);
}

Pools::Pool Pools::remove_user_of(Id id) {
  const Locked lock(mutex_);
  Pool& pool = known(id, "releasePool");
  TORCH_CHECK(pool.users > 0, "releasePool: a memory pool was released more often than it was taken");
  if (--pool.users != 0) return {};
  const Pool last = pool;
  released_.push_back({pool.number, id});
  if (released_.size() > kReleasedNames) released_.pop_front();
  pools_.erase(id);
  return last;
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
  change(id, lends ? SPILLWAY_POOL_LENDS : 0, lends ? 0 : SPILLWAY_POOL_LENDS);
}

void Pools::set_whole_pages(Id id) {
  change(id, SPILLWAY_POOL_WHOLE_PAGES | SPILLWAY_POOL_SINGLE_HANDLE);
}

uint64_t Pools::find_route(cudaStream_t stream) {
  const Locked lock(mutex_);
  // The innermost of nested pools serves, and before 2.10 the outermost, as natively.
  constexpr bool kInnermost = SPILLWAY_LIBTORCH >= 210;
  for (size_t i = 0; i < routes_.size(); ++i) {
    const auto& route = routes_[kInnermost ? routes_.size() - 1 - i : i];
    if (route.second(stream)) return pools_.at(route.first).number;
  }
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

}  // namespace spillway::libtorch
