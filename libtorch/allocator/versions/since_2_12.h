// 2.12 added: a program may learn of requests that the setting throw_on_cudamalloc_oom refuses, and of the
// stack behind a block. Spillway tries its strategies first: under that setting, what they cannot serve is
// refused and counted as such.
#pragma once
#include "base/mutex.h"
#include "libtorch/allocator/versions/since_2_11.h"

#if SPILLWAY_LIBTORCH >= 212
#include <atomic>
#include <vector>

namespace spillway::libtorch {

class Since2_12 : public Since2_11 {
 public:
  void attachOomRejectionObserver(native::OomRejectionObserver observer) override;
  std::shared_ptr<c10::GatheredContext> getContextForPointer(const void* block) override;

 protected:
  void refused(c10::DeviceIndex device, const Refusal& refusal);

 private:
  Mutex<LockOrder::kLeaf> mutex_;
  std::vector<native::OomRejectionObserver> observers_ SPILLWAY_GUARDED_BY(mutex_);
};

}  // namespace spillway::libtorch
#endif
