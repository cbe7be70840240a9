#include "strategies/used_device.h"

#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>

namespace spillway {
namespace {

enum class Span { kNone, kBegun, kNoMore };
std::atomic<Span> span{Span::kNone};
std::atomic<pid_t> spans_of{0};
constexpr int kLooks = 200;
constexpr useconds_t kBetweenLooksUs = 1'000;

// A forked child has no thread that could end a span.
void end_spans() {
  if (::getpid() != spans_of.load()) return;
  for (int look = 0; look < kLooks; ++look) {
    Span none = Span::kNone;
    if (span.compare_exchange_strong(none, Span::kNoMore)) return;
    ::usleep(kBetweenLooksUs);
  }
  span.store(Span::kNoMore);
}

}  // namespace

int device_count(const driver::Table& table) {
  int count = 0;
  if (table.cuDeviceGetCount(&count) != CUDA_SUCCESS) return 0;
  // Only now: handlers run in the reverse order, and the driver's library has registered its own.
  static const bool registered = [] {
    spans_of.store(::getpid());
    return std::atexit(end_spans) == 0;
  }();
  return registered ? count : 0;
}

std::optional<DeviceUuid> uuid_of(const driver::Table& table, int ordinal) {
  CUuuid uuid;
  if (table.cuDeviceGetUuid(&uuid, ordinal) != CUDA_SUCCESS) return std::nullopt;
  DeviceUuid device;
  std::copy_n(reinterpret_cast<const uint8_t*>(uuid.bytes), device.size(), device.begin());
  return device;
}

int ordinal_of(const driver::Table& table, const DeviceUuid& device) {
  const int count = device_count(table);
  for (int ordinal = 0; ordinal < count; ++ordinal)
    if (uuid_of(table, ordinal) == device) return ordinal;
  return -1;
}

UsedDevice::UsedDevice(const driver::Table& table, int ordinal) : table_(table), ordinal_(ordinal) {
  unsigned flags = 0;
  int active = 0;
  CUcontext context = nullptr;
  if (table.cuDevicePrimaryCtxGetState(ordinal, &flags, &active) != CUDA_SUCCESS || active == 0) return;
  if (table.cuDevicePrimaryCtxRetain(&context, ordinal) != CUDA_SUCCESS) return;
  held_ = true;
  current_ = table.cuCtxSetCurrent(context) == CUDA_SUCCESS;
}

UsedDevice::~UsedDevice() {
  if (current_) table_.cuCtxSetCurrent(nullptr);
  if (held_) table_.cuDevicePrimaryCtxRelease(ordinal_);
}

DriverSpan::DriverSpan() {
  Span none = Span::kNone;
  begun_ = span.compare_exchange_strong(none, Span::kBegun);
}

DriverSpan::~DriverSpan() {
  Span begun = Span::kBegun;
  if (begun_) span.compare_exchange_strong(begun, Span::kNone);
}

}  // namespace spillway
