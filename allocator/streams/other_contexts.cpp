#include "allocator/streams/other_contexts.h"

#include "allocator/pages/event_pool.h"

namespace spillway {

class OtherContexts::Scope {
 public:
  Scope(const driver::Table& table, CUcontext context)
      : table_(table), pushed_(table.cuCtxPushCurrent(context) == CUDA_SUCCESS) {}
  ~Scope() {
    CUcontext popped = nullptr;
    if (pushed_) table_.cuCtxPopCurrent(&popped);
  }
  Scope(const Scope&) = delete;
  Scope& operator=(const Scope&) = delete;

 private:
  const driver::Table& table_;
  const bool pushed_;
};

OtherContexts::OtherContexts(const driver::Table& table, Device& device) : table_(table), device_(device) {
  int devices = 0;
  alone_ = table.cuDeviceGetCount(&devices) == CUDA_SUCCESS && devices == 1;
}

RecordedStream OtherContexts::recorded(StreamId stream) const {
  constexpr uint64_t kPerThread = 2;  // as cuda.h numbers the default streams
  RecordedStream on{stream};
  if (alone_) return on;
  CUcontext context = nullptr;
  const CUresult result = static_cast<uint64_t>(stream) <= kPerThread
                              ? table_.cuCtxGetCurrent(&context)
                              : table_.cuStreamGetCtx(reinterpret_cast<CUstream>(stream), &context);
  if (result == CUDA_SUCCESS && !device_.is_context(context)) on.context = context;
  return on;
}

bool OtherContexts::capturing(const RecordedStream& on) {
  if (on.context == nullptr) return device_.capturing(on.stream);
  const Scope scope(table_, on.context);
  return device_.capturing(on.stream);
}

// Of another context each is used once: they are few.
CUevent OtherContexts::record(const RecordedStream& on) {
  CUresult result = CUDA_SUCCESS;
  if (on.context == nullptr || on.stream == kStreamGone) return device_.record(on.stream, &result);
  const Scope scope(table_, on.context);
  EventPool once(table_, CU_EVENT_DISABLE_TIMING);
  CUevent event = once.record(reinterpret_cast<CUstream>(on.stream));
  once.end();
  return event;
}

void OtherContexts::put_back(CUevent event, const RecordedStream& on) {
  if (on.context == nullptr)
    device_.put_back(event);
  else
    table_.cuEventDestroy(event);
}

CUresult OtherContexts::wait(const RecordedStream& on) {
  const Scope scope(table_, on.context);
  return on.stream == kStreamGone ? table_.cuCtxSynchronize()
                                  : table_.cuStreamSynchronize(reinterpret_cast<CUstream>(on.stream));
}

}  // namespace spillway
