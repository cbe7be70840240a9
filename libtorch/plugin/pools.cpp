#include "libtorch/plugin/pools.h"

#include <algorithm>
#include <stdexcept>

#include "libtorch/allocator/core.h"

namespace spillway::libtorch {

std::vector<PluginPools::Route>::iterator PluginPools::route_of(const Key& key) {
  return std::ranges::find(routes_, key, &Route::key);
}

void PluginPools::begin(int device, SpillwayPoolId id, SpillwayStreamFilter filter) {
  const Locked lock(mutex_);
  const Key key{device, id};
  if (route_of(key) != routes_.end())
    throw std::logic_error("begin_allocate_to_pool: requests already go to this memory pool");
  Pool& pool = pools_[key];
  if (pool.number == 0) pool.number = ++last_number_;
  ++pool.users;
  routes_.push_back({key, pool.number, std::move(filter)});
  routing_.store(true, std::memory_order_release);
}

void PluginPools::end(int device, SpillwayPoolId id) {
  const Locked lock(mutex_);
  const auto found = route_of({device, id});
  if (found == routes_.end())
    throw std::logic_error("end_allocate_to_pool: no request goes to this memory pool");
  routes_.erase(found);
  routing_.store(!routes_.empty(), std::memory_order_release);
}

void PluginPools::release(int device, SpillwayPoolId id) {
  const Locked lock(mutex_);
  const auto found = pools_.find({device, id});
  if (found == pools_.end() || --found->second.users > 0) return;
  core().table->set_pool(device, found->second.number, SPILLWAY_POOL_RELEASED);
  pools_.erase(found);
}

uint64_t PluginPools::find_route(int device, CUstream_st* stream) {
  const Locked lock(mutex_);
  for (auto route = routes_.rbegin(); route != routes_.rend(); ++route)  // the innermost first
    if (route->key.first == device && route->filter(stream)) return route->number;
  return 0;
}

}  // namespace spillway::libtorch
