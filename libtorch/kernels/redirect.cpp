#include "libtorch/kernels/redirect.h"

#include <c10/cuda/CUDACachingAllocator.h>
#include <cuda_runtime_api.h>

#include <optional>
#include <utility>

#include "libtorch/kernels/at_work.h"
#include "libtorch/kernels/simulator.h"

namespace spillway::kernels {
namespace {

namespace cuda_allocator = c10::cuda::CUDACachingAllocator;

__attribute__((tls_model("initial-exec"))) thread_local bool redirected = false;
thread_local unsigned scopes = 0;
thread_local std::optional<AtWork> computing;

void* to_host(void* device_address) {
  return static_cast<char*>(device_address) + alias_offset();
}
void* to_device(void* host_address) {
  return static_cast<char*>(host_address) - alias_offset();
}

void delete_redirected(void* host_address) {
  cuda_allocator::raw_delete(to_device(host_address));
}

bool is_device_memory(void* host_address) {
  cudaPointerAttributes attributes{};
  return cudaPointerGetAttributes(&attributes, to_device(host_address)) == cudaSuccess &&
         attributes.type == cudaMemoryTypeDevice;
}

class RedirectingAllocator final : public c10::Allocator {
 public:
  explicit RedirectingAllocator(c10::Allocator* host) : host_(host) {}

  c10::DataPtr allocate(size_t bytes) override {
    if (!redirected || bytes == 0) return host_->allocate(bytes);
    // Suspended meanwhile: a strategy that makes room may itself allocate host tensors.
    redirected = false;
    struct Restore {
      ~Restore() { redirected = true; }
    } restore;
    // Whoever makes room waits for kernels at work, and this one waits for room.
    const AtWork asking(Work::kPaused);
    void* host_address = to_host(cuda_allocator::raw_alloc(bytes));
    return {host_address, host_address, &delete_redirected, c10::Device(c10::DeviceType::CPU)};
  }

  // Serves both kinds of block, because `raw_allocate` (oneDNN's scratch) keeps no deleter: found by address.
  c10::DeleterFnPtr raw_deleter() const override { return &delete_either; }

  void copy_data(void* to, const void* from, size_t bytes) const override {
    host_->copy_data(to, from, bytes);
  }

  bool is_simple_data_ptr(const c10::DataPtr& data) const override {
    return data.get_deleter() == &delete_redirected ? data.get() == data.get_context()
                                                    : host_->is_simple_data_ptr(data);
  }

 private:
  static void delete_either(void* host_address);

  c10::Allocator* host_;
};

RedirectingAllocator* allocator = nullptr;

void RedirectingAllocator::delete_either(void* host_address) {
  if (host_address == nullptr) return;
  if (is_device_memory(host_address)) {
    delete_redirected(host_address);
  } else {
    allocator->host_->raw_deleter()(host_address);
  }
}

void delete_by_address(void* address) {
  cuda_allocator::raw_delete(address);
}

// The allocator's own is known to those who look for its blocks. That of a pluggable allocator takes no
// address before 2.9.
c10::DeleterFnPtr deleter_by_address() {
  cuda_allocator::CUDAAllocator* cuda = cuda_allocator::get();
  const bool takes_addresses = SPILLWAY_LIBTORCH >= 209 || cuda->name() != "pluggable";
  return takes_addresses ? cuda->raw_deleter() : &delete_by_address;
}

}  // namespace

void install_redirect() {
  constexpr uint8_t kAboveAnyOther = 255;
  allocator = new RedirectingAllocator(c10::GetAllocator(c10::DeviceType::CPU));
  c10::SetAllocator(c10::DeviceType::CPU, allocator, kAboveAnyOther);
}

c10::Allocator* redirecting_allocator() {
  return allocator;
}

// A kernel computes as long as the outermost one lives.
RedirectScope::RedirectScope() noexcept : outer_(std::exchange(redirected, true)) {
  if (scopes++ == 0) computing.emplace();
}
RedirectScope::~RedirectScope() {
  redirected = outer_;
  if (--scopes == 0) computing.reset();
}

HostScope::HostScope() noexcept : outer_(std::exchange(redirected, false)) {}
HostScope::~HostScope() {
  redirected = outer_;
}

bool is_redirected(const c10::DataPtr& data) noexcept {
  return data.get_deleter() == &delete_redirected;
}

c10::DataPtr to_device_block(c10::DataPtr data, c10::Device device) {
  void* address = to_device(data.release_context());
  return {address, address, deleter_by_address(), device};
}

}  // namespace spillway::kernels
