#include "strategies/processes/primary_context_guard.h"

#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <charconv>
#include <cstdlib>
#include <string_view>
#include <system_error>

namespace spillway {
namespace {

constexpr unsigned kNoMore = 1u << 31;
std::atomic<unsigned> spans{0};  // under way, and whether no more may begin
std::atomic<pid_t> spans_of{0};
constexpr int kLooks = 10'000;
constexpr useconds_t kBetweenLooksUs = 1'000;

// A forked child has no thread that could end a span.
void end_spans() {
  if (::getpid() != spans_of.load()) return;
  spans.fetch_or(kNoMore);
  for (int look = 0; look < kLooks && spans.load() != kNoMore; ++look) ::usleep(kBetweenLooksUs);
}

void add_handler_of_exit() {
  spans_of.store(::getpid());
  if (std::atexit(end_spans) != 0) spans.fetch_or(kNoMore);
}

}  // namespace

void end_spans_at_exit() {
  static const bool once = (add_handler_of_exit(), true);
  (void)once;
}

void end_spans_before_what_is_loaded() {
  static const bool once = (add_handler_of_exit(), true);
  (void)once;
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
  return device;
}

int ordinal_of(const driver::Table& table, const DeviceUuid& device) {
  const int count = device_count(table);
  for (int ordinal = 0; ordinal < count; ++ordinal)
    if (uuid_of(table, ordinal) == device) return ordinal;
  return -1;
}

uint64_t number_on_machine(const char* visible, int ordinal) {
  if (visible == nullptr) return static_cast<uint64_t>(ordinal) + 1;
  std::string_view rest = visible;
  for (int before = 0; before < ordinal; ++before) {
    const size_t comma = rest.find(',');
    if (comma == std::string_view::npos) return 0;
    rest.remove_prefix(comma + 1);
  }
  rest = rest.substr(0, rest.find(','));
  while (rest.starts_with(' ')) rest.remove_prefix(1);
  while (rest.ends_with(' ')) rest.remove_suffix(1);
  uint32_t number = 0;
  const auto [end, error] = std::from_chars(rest.data(), rest.data() + rest.size(), number);
  return error == std::errc() && end == rest.data() + rest.size() ? uint64_t{number} + 1 : 0;
}

PrimaryContextGuard::PrimaryContextGuard(const driver::Table& table, int ordinal)
    : table_(table), ordinal_(ordinal) {
  unsigned flags = 0;
  int active = 0;
  CUcontext context = nullptr;
  if (table.cuDevicePrimaryCtxGetState(ordinal, &flags, &active) != CUDA_SUCCESS || active == 0) return;
  if (table.cuDevicePrimaryCtxRetain(&context, ordinal) != CUDA_SUCCESS) return;
  held_ = true;
  current_ = table.cuCtxSetCurrent(context) == CUDA_SUCCESS;
}

PrimaryContextGuard::~PrimaryContextGuard() {
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
