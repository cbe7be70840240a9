// What Spillway's allocator does not do yet. Each raises an error with its name, so that nothing goes
// silently wrong.
#include "libtorch/allocator/allocator.h"

namespace spillway::libtorch {
namespace {

[[noreturn]] void not_yet(const char* function, const char* purpose) {
  TORCH_CHECK_NOT_IMPLEMENTED(false, "Spillway's allocator does not support ", function, " yet (", purpose,
                              "). Run without spillway.install() to use PyTorch's native allocator.");
}

constexpr const char* kPools = "checkpoints of a graph's memory pool";
constexpr const char* kSharing = "CUDA tensors shared between processes";

}  // namespace

native::ShareableHandle Allocator::shareIpcHandle(void*) {
  not_yet("shareIpcHandle", kSharing);
}
std::shared_ptr<void> Allocator::getIpcDevPtr(std::string) {
  not_yet("getIpcDevPtr", kSharing);
}
void Allocator::recordHistory(bool enabled, native::CreateContextFn, size_t, native::RecordContext, bool,
                              const std::vector<std::string>&) {
  if (enabled) not_yet("recordHistory", "use SPILLWAY_TRACE and spillway report instead");
}
std::shared_ptr<native::AllocatorState> Allocator::getCheckpointState(c10::DeviceIndex, c10::MempoolId_t) {
  not_yet("getCheckpointState", kPools);
}
native::CheckpointDelta Allocator::setCheckpointPoolState(c10::DeviceIndex,
                                                          std::shared_ptr<native::AllocatorState>) {
  not_yet("setCheckpointPoolState", kPools);
}

}  // namespace spillway::libtorch
