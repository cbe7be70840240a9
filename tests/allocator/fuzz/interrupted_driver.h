// The simulated driver, in whose calls the test is another thread: what a test wants done runs once, on a
// thread of its own, while the allocator waits for one of its calls, and has ended when that call returns.
// The order of the two threads is the test's, and no chance has a part in it.
//
// Thread-safety: one at a time, used by one thread. Ownership: it must outlive the allocators that use it.
// Errors: those of the simulated driver.
#pragma once
#include <functional>
#include <set>
#include <thread>
#include <utility>

#include "tests/allocator/simulated.h"

namespace spillway::testing {

class InterruptedDriver {
 public:
  InterruptedDriver() : table_(simulated_table()) {
    table_.cuEventCreate = create;
    table_.cuEventSynchronize = wait;
    table_.cuMemcpyAsync = copy;
    after_wait_ = at_copy_ = nullptr;
    timeless_.clear();
  }
  const driver::Table& table() const { return table_; }

  // After the next wait for an event is over, and before the waiting thread knows it. Events that tell the
  // time are not meant: the allocator reads its clock by them.
  static void after_next_wait(std::function<void()> work) { after_wait_ = std::move(work); }
  // Before the next copy is queued.
  static void at_next_copy(std::function<void()> work) { at_copy_ = std::move(work); }

 private:
  static void run(std::function<void()>& planned) {
    const std::function<void()> work = std::exchange(planned, nullptr);
    if (!work) return;
    CUcontext context = nullptr;
    simulated_table().cuCtxGetCurrent(&context);
    std::thread([&] {
      simulated_table().cuCtxSetCurrent(context);
      work();
    }).join();
  }
  static CUresult CUDAAPI create(CUevent* event, unsigned flags) {
    const CUresult result = simulated_table().cuEventCreate(event, flags);
    if (result == CUDA_SUCCESS && (flags & CU_EVENT_DISABLE_TIMING) != 0) timeless_.insert(*event);
    return result;
  }
  static CUresult CUDAAPI wait(CUevent event) {
    const CUresult result = simulated_table().cuEventSynchronize(event);
    if (timeless_.contains(event)) run(after_wait_);
    return result;
  }
  static CUresult CUDAAPI copy(CUdeviceptr to, CUdeviceptr from, size_t bytes, CUstream stream) {
    run(at_copy_);
    return simulated_table().cuMemcpyAsync(to, from, bytes, stream);
  }

  driver::Table table_;
  static inline std::function<void()> after_wait_, at_copy_;
  static inline std::set<CUevent> timeless_;
};

}  // namespace spillway::testing
