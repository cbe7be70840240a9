// CUDA tensors that processes share: PyTorch's two calls for it, and what is mapped of others here.
#include <c10/cuda/CUDAException.h>
#include <cuda_runtime_api.h>

#include <memory>
#include <unordered_map>

#include "base/mutex.h"
#include "libtorch/allocator/allocator.h"
#include "libtorch/allocator/core.h"
#include "libtorch/allocator/ipc/ipc_descriptors.h"
#include "libtorch/allocator/ipc/ipc_format.h"

namespace spillway::libtorch {
namespace {

constexpr char kVersion = handle_version(SPILLWAY_LIBTORCH % 100);

void add_page(void* context, const spillway_shared_page* page) {
  static_cast<std::vector<spillway_shared_page>*>(context)->push_back(*page);
}

// Maps the pages that a handle names.
void* map_pages(c10::DeviceIndex device, const ParsedHandle& handle) {
  constexpr const char* kRefusal = "Spillway's allocator cannot open a shared CUDA tensor: ";
  Descriptors descriptors;
  const std::string error = descriptors.fetch(handle);
  TORCH_CHECK(error.empty(), kRefusal, error);
  std::vector<spillway_shared_page> pages = handle.pages;
  for (size_t i = 0; i < pages.size(); ++i) pages[i].descriptor = descriptors.list()[i];
  void* address = nullptr;
  const spillway_status status = core().table->map_shared(device, pages.data(), pages.size(), &address);
  TORCH_CHECK(status == SPILLWAY_OK, kRefusal, core().last_error(), " (shared by ",
              handle.by_spillway ? "Spillway's" : "PyTorch's native", " allocator in process ",
              handle.sharer.process, ")");
  return address;
}

// What is mapped of other processes, by handle: once however many tensors lie in it, until the last is gone.
class Imports {
 public:
  static Imports& get() {
    static auto* const imports = new Imports;  // tensors outlive static destruction
    return *imports;
  }

  std::shared_ptr<void> open(c10::DeviceIndex device, const std::string& handle, const ParsedHandle& parsed) {
    const Locked lock(mutex_);
    Import& import = imports_[handle];
    if (std::shared_ptr<void> mapped = import.mapped.lock()) return mapped;
    try {
      import.address = map_pages(device, parsed);
    } catch (...) {
      // If an older mapping is on its way out, its end finds nothing to forget.
      imports_.erase(handle);
      throw;
    }
    std::shared_ptr<void> mapped(import.address, [this, handle](void* address) { close(handle, address); });
    import.mapped = mapped;
    return mapped;
  }

 private:
  struct Import {
    void* address = nullptr;
    std::weak_ptr<void> mapped;
  };

  void close(const std::string& handle, void* address) {
    {
      const Locked lock(mutex_);
      const auto found = imports_.find(handle);
      // Somebody may have mapped it anew since the last user went.
      if (found != imports_.end() && found->second.address == address) imports_.erase(found);
    }
    core().table->unmap_shared(address);
  }

  Mutex<LockOrder::kIpcImports> mutex_;
  std::unordered_map<std::string, Import> imports_ SPILLWAY_GUARDED_BY(mutex_);
};

}  // namespace

native::ShareableHandle Allocator::shareIpcHandle(void* address) {
  std::vector<spillway_shared_page> pages;
  uint64_t offset = 0;
  const spillway_status status = core().table->share(address, &add_page, &pages, &offset);
  if (status == SPILLWAY_NOT_FOUND) return before_->shareIpcHandle(address);  // from before the installation
  TORCH_CHECK(status == SPILLWAY_OK, "Spillway's allocator cannot share the tensor at ", address, ": ",
              core().last_error());
  if (pages.empty()) {
    cudaIpcMemHandle_t allocation;
    C10_CUDA_CHECK(cudaIpcGetMemHandle(&allocation, address));
    return {static_cast<ptrdiff_t>(offset),
            encode_allocation(kVersion, {allocation.reserved, sizeof allocation.reserved})};
  }
  return {static_cast<ptrdiff_t>(offset), encode_pages(kVersion, this_sharer(), pages)};
}

std::shared_ptr<void> Allocator::getIpcDevPtr(std::string handle) {
  ParsedHandle parsed;
  const std::string error = parse_handle(handle, &parsed);
  TORCH_CHECK(error.empty(), "Spillway's allocator cannot open a shared CUDA tensor: ", error);
  // A whole cudaMalloc belongs to nobody's pages: the native allocator opens it, and caches that.
  if (parsed.kind == HandleKind::kAllocation) return before_->getIpcDevPtr(std::move(handle));
  return Imports::get().open(current_device(), handle, parsed);
}

}  // namespace spillway::libtorch
