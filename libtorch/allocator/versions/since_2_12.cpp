#include "libtorch/allocator/versions/since_2_12.h"

#if SPILLWAY_LIBTORCH >= 212
namespace spillway::libtorch {

void Since2_12::attachOomRejectionObserver(native::OomRejectionObserver observer) {
  const Locked lock(mutex_);
  observers_.push_back(std::move(observer));
}

std::shared_ptr<c10::GatheredContext> Since2_12::getContextForPointer(const void* block) {
  return context_of(block);
}

void Since2_12::refused(c10::DeviceIndex device, const Refusal& refusal) {
  std::vector<native::OomRejectionObserver> observers;
  {
    const Locked lock(mutex_);
    observers = observers_;
  }
  for (const auto& observer : observers) observer(device, refusal.asked, refusal.allocated, refusal.total);
}

}  // namespace spillway::libtorch
#endif
