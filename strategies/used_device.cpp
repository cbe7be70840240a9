#include "strategies/used_device.h"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdlib>
#include <cstring>

namespace spillway {
namespace {

constexpr unsigned kNoMore = 1u << 31;
std::atomic<unsigned> spans{0};  // under way, and whether no more may begin
std::atomic<pid_t> spans_of{0};
constexpr int kLooks = 200;
constexpr useconds_t kBetweenLooksUs = 1'000;

// A device's uuid never changes while the process lives, so several threads may find it at once.
class Known {
 public:
  void set(const DeviceUuid& device) {
    uint64_t words[2];
    std::memcpy(words, device.data(), sizeof words);
    words_[0].store(words[0]);
    words_[1].store(words[1]);
    is_set_.store(true);
  }
  std::optional<DeviceUuid> get() const {
    if (!is_set_.load()) return std::nullopt;
    const uint64_t words[2] = {words_[0].load(), words_[1].load()};
    DeviceUuid device;
    static_assert(sizeof device == sizeof words);
    std::memcpy(device.data(), words, sizeof words);
    return device;
  }

 private:
  std::array<std::atomic<uint64_t>, 2> words_{};
  std::atomic<bool> is_set_{false};
};
std::array<Known, 64> known;  // by ordinal

// A forked child has no thread that could end a span.
void end_spans() {
  if (::getpid() != spans_of.load()) return;
  spans.fetch_or(kNoMore);
  for (int look = 0; look < kLooks && spans.load() != kNoMore; ++look) ::usleep(kBetweenLooksUs);
}

}  // namespace

void end_spans_at_exit() {
  static const bool registered = [] {
    spans_of.store(::getpid());
    return std::atexit(end_spans) == 0;
  }();
  if (!registered) spans.fetch_or(kNoMore);
}

int device_count(const driver::Table& table) {
  int count = 0;
  if (table.cuDeviceGetCount(&count) != CUDA_SUCCESS) return 0;
  end_spans_at_exit();
  return count;
}

std::optional<DeviceUuid> uuid_of(const driver::Table& table, int ordinal) {
  CUuuid uuid;
  if (table.cuDeviceGetUuid(&uuid, ordinal) != CUDA_SUCCESS) return std::nullopt;
  DeviceUuid device;
  std::copy_n(reinterpret_cast<const uint8_t*>(uuid.bytes), device.size(), device.begin());
  if (static_cast<size_t>(ordinal) < known.size()) known[static_cast<size_t>(ordinal)].set(device);
  return device;
}

std::optional<DeviceUuid> known_uuid(int ordinal) {
  return static_cast<size_t>(ordinal) < known.size() ? known[static_cast<size_t>(ordinal)].get()
                                                     : std::nullopt;
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
  unsigned now = spans.load();
  while ((now & kNoMore) == 0 && !begun_) begun_ = spans.compare_exchange_weak(now, now + 1);
}

DriverSpan::~DriverSpan() {
  if (begun_) spans.fetch_sub(1);
}

}  // namespace spillway
