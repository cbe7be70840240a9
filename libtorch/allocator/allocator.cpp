#include "libtorch/allocator/allocator.h"

#include <c10/core/Allocator.h>
#include <c10/core/impl/GPUTrace.h>
#include <c10/cuda/CUDAException.h>
#include <c10/cuda/CUDAFunctions.h>
#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAStream.h>

#include <algorithm>
#include <bit>

#include "libtorch/allocator/collect.h"
#include "libtorch/allocator/core.h"
#include "libtorch/allocator/optimizer_steps.h"
#include "libtorch/allocator/pools/segments.h"
#include "libtorch/allocator/uses.h"
#include "libtorch/work_label.h"

namespace spillway::libtorch {
namespace {

uint64_t id_of(cudaStream_t stream) {
  return reinterpret_cast<uint64_t>(stream);
}

bool is_default(cudaStream_t stream) {
  return stream == nullptr || stream == cudaStreamLegacy || stream == cudaStreamPerThread;
}

// The one instance, for deleters: a function pointer carries no state.
Allocator* instance = nullptr;

void delete_block(void* address) {
  instance->raw_delete(address);
}

bool forked_child = false;  // set between fork and the child's first line

bool profiled() {
  return C10_UNLIKELY(c10::ThreadLocalDebugInfo::get(c10::DebugInfoKind::PROFILER_STATE) != nullptr);
}

}  // namespace

void hear(uint32_t change, const spillway_block_info* block) {
  instance->hear(change, *block);
}

Allocator::Allocator(native::CUDAAllocator* before) : before_(before) {
  instance = this;
  pthread_atfork(nullptr, nullptr, [] { forked_child = true; });
}

Allocator::Device& Allocator::device(c10::DeviceIndex index) {
  TORCH_CHECK(
      index >= 0 && static_cast<size_t>(index) < devices_.size(),
      "Spillway's allocator does not know device ", static_cast<int>(index), ": ",
      devices_.empty() ? "CUDA is not initialised (call torch.cuda.init())" : "there is no such device");
  return *devices_[static_cast<size_t>(index)];
}

void Allocator::init(int device_count) {
  before_->init(device_count);
  const spillway_status status = core().table->start();
  TORCH_CHECK(status == SPILLWAY_OK, "Spillway's allocator cannot start: ", core().last_error());
  watch_uses_under_pressure();
  core().table->name_work([](char* text, uint64_t size) {
    const std::string label = work_label();
    label.copy(text, std::min<size_t>(label.size(), size - 1));
    text[std::min<size_t>(label.size(), size - 1)] = '\0';
  });
  if (devices_.empty()) {
    settings_.follow();
    watch_optimizer_steps();
  }
  while (devices_.size() < static_cast<size_t>(device_count)) {
    devices_.push_back(std::make_unique<Device>(static_cast<int>(devices_.size())));
    devices_.back()->fraction = Settings::fraction_at_start();
  }
  collect_when_short();
}

// With one device there is nothing to ask.
c10::DeviceIndex Allocator::current_device() const {
  c10::DeviceIndex device = 0;
  if (devices_.size() != 1) C10_CUDA_CHECK(c10::cuda::GetDevice(&device));
  return device;
}

// Inlined, as what every request and free goes through.
[[gnu::always_inline]] inline void* Allocator::obtain(const Asker& asker, size_t bytes) {
  spillway_failure failure;  // filled only when there is one
  failure.size = sizeof failure;
  void* address = nullptr;
  const uint64_t stream = id_of(asker.stream);
  const auto ask = [&] {
    return C10_UNLIKELY(settings_.pads(bytes))
               ? core().table->allocate_padded(asker.device, stream, asker.pool, bytes,
                                               settings_.padded(bytes), &address, &failure)
               : core().table->allocate(asker.device, stream, asker.pool, bytes, &address, &failure);
  };
  const spillway_status status = ask();
  if (C10_LIKELY(status == SPILLWAY_OK)) return address;
  throw_own_failure();
  fail(asker, status, failure);
}

[[gnu::always_inline]] inline void* Allocator::serve(c10::DeviceIndex index, size_t bytes,
                                                     cudaStream_t stream) {
  Device& device = this->device(index);
  // The driver's calls need the primary context, which the runtime makes at the first call that needs it.
  std::call_once(device.context_made, [&] {
    C10_CUDA_CHECK(cudaFree(nullptr));
    if (device.fraction < 1) setMemoryFraction(device.fraction, index);
  });
  void* address = obtain({index, stream, device.pools.route(stream)}, bytes);
  if (C10_UNLIKELY(settings_.is_oversize(bytes))) device.statistics.oversize_allocated();
  if (const auto* trace = c10::impl::GPUTrace::get_trace(); C10_UNLIKELY(trace != nullptr)) {
    (*trace)->trace_gpu_memory_allocation(c10::kCUDA, reinterpret_cast<uintptr_t>(address));
  }
  if (profiled()) {
    c10::reportMemoryUsageToProfiler(address, static_cast<int64_t>(rounded(bytes)),
                                     usage_of(index).all.live.bytes, memory_of(index).reserved,
                                     c10::Device(c10::kCUDA, index));
  }
  return address;
}

void* Allocator::allocate_on(c10::DeviceIndex index, size_t bytes, cudaStream_t stream) {
  if (C10_LIKELY(!listeners_.wanted())) return serve(index, bytes, stream);
  const Listeners::Call call(listeners_.history().gather(native::RecordContext::STATE));
  return serve(index, bytes, stream);
}

c10::DataPtr Allocator::allocate(size_t bytes) {
  if (C10_UNLIKELY(off())) return before_->allocate(bytes);
  if (C10_UNLIKELY(bytes >= kExabyte)) refuse_exabytes();
  const c10::DeviceIndex index = current_device();
  void* address = bytes == 0 ? nullptr : allocate_on(index, bytes, c10::cuda::getCurrentCUDAStream(index));
  return {address, address, &delete_block, c10::Device(c10::DeviceType::CUDA, index)};
}

c10::DeleterFnPtr Allocator::raw_deleter() const {
  return off() ? before_->raw_deleter() : &delete_block;
}

void Allocator::copy_data(void* to, const void* from, size_t bytes) const {
  C10_CUDA_CHECK(cudaMemcpy(to, from, bytes, cudaMemcpyDeviceToDevice));
}

void* Allocator::raw_alloc(size_t bytes) {
  if (C10_UNLIKELY(off())) return before_->raw_alloc(bytes);
  if (bytes == 0) return nullptr;
  const c10::DeviceIndex index = current_device();
  return allocate_on(index, bytes, c10::cuda::getCurrentCUDAStream(index));
}

void* Allocator::allocate_at(size_t bytes, void* address) {
  const c10::DeviceIndex index = current_device();
  const cudaStream_t stream = c10::cuda::getCurrentCUDAStream(index);
  const Listeners::Call call(listeners_.history().gather(native::RecordContext::STATE));
  const uint64_t pool = device(index).pools.route(stream);
  const spillway_status status = core().table->allocate_at(index, id_of(stream), pool, bytes, address);
  return status == SPILLWAY_OK ? address : nullptr;
}

void* Allocator::raw_alloc_with_stream(size_t bytes, cudaStream_t stream) {
  if (C10_UNLIKELY(off())) return before_->raw_alloc_with_stream(bytes, stream);
  return bytes == 0 ? nullptr : allocate_on(current_device(), bytes, stream);
}

[[gnu::always_inline]] inline void Allocator::release(void* address) {
  const auto* trace = c10::impl::GPUTrace::get_trace();
  if (C10_UNLIKELY(trace != nullptr && core().table->find_block(address, nullptr) == SPILLWAY_OK)) {
    (*trace)->trace_gpu_memory_deallocation(c10::kCUDA, reinterpret_cast<uintptr_t>(address));
  }
  spillway_block_info block;
  if (C10_UNLIKELY(core().table->free(address, &block) != SPILLWAY_OK)) {
    before_->raw_delete(address);  // from before the installation
    return;
  }
  if (C10_UNLIKELY(settings_.is_oversize(block.requested_bytes)))
    devices_[static_cast<size_t>(block.device)]->statistics.oversize_freed();
  if (profiled()) {
    c10::reportMemoryUsageToProfiler(address, -static_cast<int64_t>(rounded(block.requested_bytes)),
                                     usage_of(block.device).all.live.bytes, memory_of(block.device).reserved,
                                     c10::Device(c10::kCUDA, static_cast<c10::DeviceIndex>(block.device)));
  }
}

void Allocator::raw_delete(void* address) {
  // A child of fork has no CUDA; the tensors that it inherited are its parent's to free.
  if (address == nullptr || forked_child) return;
  if (C10_LIKELY(!listeners_.wanted())) return release(address);
  const Listeners::Call call(listeners_.history().gather(native::RecordContext::ALL));
  release(address);
}

void Allocator::recordStream(const c10::DataPtr& data, c10::cuda::CUDAStream stream) {
  if (data.get() == nullptr) return;
  if (data.get_deleter() != &delete_block) {
    before_->recordStream(data, stream);  // its own block, or memory of neither, which it passes over
    return;
  }
  // A default stream has the same name on every device: it is taken for the current one's.
  c10::cuda::OptionalCUDAGuard guard;
  if (is_default(stream.stream())) guard.set_index(stream.device_index());
  core().table->record_stream(data.get(), id_of(stream.stream()));
}

void Allocator::emptyCache(c10::cuda::MempoolId_t pool) {
  const Listeners::Call call(listeners_.history().gather(native::RecordContext::ALL));
  const bool every = pool.first == 0 && pool.second == 0;
  GivingBack giving_back;
  for (size_t i = 0; i < devices_.size(); ++i) {
    // A pool that is in use keeps its pages.
    Pools& pools = devices_[i]->pools;
    const uint64_t number = every ? SPILLWAY_EVERY_POOL : pools.released_number_of(pool);
    if (number == 0) continue;
    core().table->empty_cache(static_cast<int32_t>(i), number);
    devices_[i]->statistics.synchronized();
  }
  before_->emptyCache(pool);
  giving_back.throw_failure();
}

void Allocator::beginAllocateToPool(c10::DeviceIndex index, c10::cuda::MempoolId_t pool,
                                    std::function<bool(cudaStream_t)> filter) {
  device(index).pools.begin(pool, std::move(filter));
}

void Allocator::endAllocateToPool(c10::DeviceIndex index, c10::cuda::MempoolId_t pool) {
  device(index).pools.end(pool);
}

void Allocator::releasePool(c10::DeviceIndex index, c10::cuda::MempoolId_t pool) {
  device(index).pools.remove_user(pool);
}

int Allocator::getPoolUseCount(c10::DeviceIndex index, c10::cuda::MempoolId_t pool) {
  return device(index).pools.users(pool);
}

void Allocator::createOrIncrefPool(c10::DeviceIndex index, c10::cuda::MempoolId_t pool,
                                   std::shared_ptr<CUDAAllocator> allocator) {
  device(index).pools.add_user(pool, std::move(allocator));
}

void Allocator::setUseOnOOM(c10::DeviceIndex index, c10::cuda::MempoolId_t pool, bool use) {
  device(index).pools.set_lends(pool, use);
}

void Allocator::setNoSplit(c10::DeviceIndex index, c10::cuda::MempoolId_t pool) {
  device(index).pools.set_whole_pages(pool);
}

bool Allocator::checkPoolLiveAllocations(c10::DeviceIndex index, c10::cuda::MempoolId_t pool,
                                         const std::unordered_set<void*>& expected) {
  const uint64_t number = device(index).pools.number_of(pool);
  TORCH_CHECK(number != 0, "checkPoolLiveAllocations: device ", static_cast<int>(index),
              " has no such memory pool");
  size_t live = 0;
  for (const Segment& segment : segments_of(index)) {
    if (segment.pool != number) continue;
    for (const spillway_block_info& block : segment.blocks) {
      if (block.state != static_cast<uint32_t>(BlockState::kLive)) continue;
      if (expected.count(std::bit_cast<void*>(block.address)) == 0) return false;
      ++live;
    }
  }
  return live == expected.size();
}

double Allocator::getMemoryFraction(c10::DeviceIndex index) {
  return device(index).fraction;
}

void Allocator::setMemoryFraction(double fraction, c10::DeviceIndex index) {
  TORCH_CHECK(fraction >= 0 && fraction <= 1, "invalid memory fraction ", fraction,
              ": it is between 0 and 1");
  Device& device = this->device(index);
  const c10::cuda::CUDAGuard guard(index);
  size_t free = 0;
  size_t total = 0;
  C10_CUDA_CHECK(cudaMemGetInfo(&free, &total));
  const Locked lock(device.limit_mutex);
  // A fraction never lifts the limit that the user set, or has lowered since the last one.
  const uint64_t now = memory_of(index).limit;
  if (device.user_limit == 0 || now < device.core_limit) device.user_limit = now;
  const auto allowed = static_cast<uint64_t>(fraction * static_cast<double>(total));
  device.core_limit = std::max<uint64_t>(std::min(allowed, device.user_limit), 1);  // 0 would be no limit
  const spillway_status status = core().limit(index, device.core_limit);
  TORCH_CHECK(status == SPILLWAY_OK, "a memory fraction cannot be set: ", core().last_error());
  device.fraction = fraction;
}

// While it is off the native code makes each block a cudaMalloc, and its free a cudaFree.
void Allocator::enable(bool value) {
  before_->enable(value);
  off_.store(!value, std::memory_order_relaxed);
}

void Allocator::enablePeerAccess(c10::DeviceIndex from, c10::DeviceIndex to) {
  const c10::cuda::CUDAGuard guard(from);
  const cudaError_t error = cudaDeviceEnablePeerAccess(to, 0);
  if (error == cudaErrorPeerAccessAlreadyEnabled)
    static_cast<void>(cudaGetLastError());
  else
    C10_CUDA_CHECK(error);
  // The driver's switch does not reach memory that is mapped by pages.
  const spillway_status status = core().table->grant(to, from);
  TORCH_CHECK(status == SPILLWAY_OK, "enablePeerAccess: ", core().last_error());
}

// Without peer access only a peer copy reaches memory that is mapped for its own device.
cudaError_t Allocator::memcpyAsync(void* to, int to_device, const void* from, int from_device, size_t bytes,
                                   cudaStream_t stream, bool peer_access) {
  if (peer_access || to_device == from_device)
    return cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToDevice, stream);
  return cudaMemcpyPeerAsync(to, to_device, from, from_device, bytes, stream);
}

}  // namespace spillway::libtorch
