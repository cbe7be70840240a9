// What Spillway's allocator does not do yet. Each raises an error with its name, so that nothing goes
// silently wrong; what destructors call does nothing, because without the others there is nothing to undo.
#include "libtorch/allocator/allocator.h"

namespace spillway::libtorch {
namespace {

[[noreturn]] void not_yet(const char* function, const char* purpose) {
  TORCH_CHECK_NOT_IMPLEMENTED(false, "Spillway's allocator does not support ", function, " yet (", purpose,
                              "). Run without spillway.install() to use PyTorch's native allocator.");
}

constexpr const char* kPools = "CUDA graphs and memory pools";
constexpr const char* kSharing = "CUDA tensors shared between processes";

}  // namespace

void Allocator::beginAllocateToPool(c10::DeviceIndex, c10::MempoolId_t, std::function<bool(cudaStream_t)>) {
  not_yet("beginAllocateToPool", kPools);
}
void Allocator::endAllocateToPool(c10::DeviceIndex, c10::MempoolId_t) {}
void Allocator::releasePool(c10::DeviceIndex, c10::MempoolId_t) {}
void Allocator::setUseOnOOM(c10::DeviceIndex, c10::MempoolId_t, bool) {}
int Allocator::getPoolUseCount(c10::DeviceIndex, c10::MempoolId_t) {
  not_yet("getPoolUseCount", kPools);
}
void Allocator::createOrIncrefPool(c10::DeviceIndex, c10::MempoolId_t, std::shared_ptr<CUDAAllocator>) {
  not_yet("createOrIncrefPool", kPools);
}
void Allocator::setNoSplit(c10::DeviceIndex, c10::MempoolId_t) {
  not_yet("setNoSplit", kPools);
}
bool Allocator::checkPoolLiveAllocations(c10::DeviceIndex, c10::MempoolId_t,
                                         const std::unordered_set<void*>&) {
  not_yet("checkPoolLiveAllocations", kPools);
}
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
