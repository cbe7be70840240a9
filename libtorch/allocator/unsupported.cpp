// What Spillway's allocator does not do yet. Each raises an error with its name, so that nothing goes
// silently wrong.
#include "libtorch/allocator/allocator.h"

namespace spillway::libtorch {
namespace {

[[noreturn]] void not_yet(const char* function, const char* purpose) {
  TORCH_CHECK_NOT_IMPLEMENTED(false, "Spillway's allocator does not support ", function, " yet (", purpose,
                              "). Run without spillway.install() to use PyTorch's native allocator.");
}

constexpr const char* kSharing = "CUDA tensors shared between processes";

}  // namespace

native::ShareableHandle Allocator::shareIpcHandle(void*) {
  not_yet("shareIpcHandle", kSharing);
}
std::shared_ptr<void> Allocator::getIpcDevPtr(std::string) {
  not_yet("getIpcDevPtr", kSharing);
}

}  // namespace spillway::libtorch
