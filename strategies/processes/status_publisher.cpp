#include "strategies/processes/status_publisher.h"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <iterator>
#include <string>

#include "allocator/accounting/process_budget.h"
#include "strategies/budget/budget.h"
#include "strategies/core/free_bytes.h"
#include "strategies/core/process.h"
#include "strategies/framework/framework_course.h"
#include "strategies/processes/container.h"
#include "strategies/processes/primary_context_guard.h"

namespace spillway {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

constexpr auto kSoonest = milliseconds(50);
constexpr auto kLookForFramework = std::chrono::seconds(2);
// PyTorch holds its lock longer than that only while it waits for the device or the ladder.
constexpr auto kFrameworkAnswers = milliseconds(20);

template <size_t size>
void set(char (&field)[size], std::string_view text) {
  const size_t length = std::min(text.size(), size - 1);
  std::memset(field, 0, size);
  std::copy_n(text.begin(), length, field);
}

std::string text_of(const char* path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

uint64_t outcome_of(LadderOutcome outcome) {
  if (outcome == LadderOutcome::kGranted) return LedgerIncident::kGranted;
  return outcome == LadderOutcome::kUnwind ? LedgerIncident::kUnwind : LedgerIncident::kGaveUp;
}

// "python train.py --epochs 3": the program without its folder.
std::string command_line() {
  std::string line = text_of("/proc/self/cmdline");
  while (!line.empty() && line.back() == '\0') line.pop_back();
  const size_t first = std::min(line.find('\0'), line.size());
  const size_t slash = line.rfind('/', first);
  std::replace(line.begin(), line.end(), '\0', ' ');
  return slash == std::string::npos || slash >= first ? line : line.substr(slash + 1);
}

std::string container() {
  const std::string by_group = container_in(text_of("/proc/self/cgroup"));
  return by_group.empty() ? container_in(text_of("/proc/self/mountinfo")) : by_group;
}

}  // namespace

Holding holding_of(int ordinal, std::optional<uint64_t> driver_free) {
  Holding holding;
  Memory memory;
  Allocator* allocator = Process::get().allocator();
  if (allocator != nullptr && allocator->uses(DeviceId{ordinal}) &&
      allocator->memory(DeviceId{ordinal}, &memory, driver_free) == Status::kOk) {
    holding.held_bytes = memory.reserved;
    holding.cached_bytes = memory.cached;
    holding.spilled_bytes = memory.spilled;
    holding.spilled_peer_bytes = memory.spilled_peer;
    holding.spilled_nvme_bytes = memory.spilled_nvme;
    if (memory.limit < memory.device) holding.limit_bytes = memory.limit;
  }
  if (const spillway_budget* budget = process_budget(); budget != nullptr) {
    holding.native_bytes = budget::read(budget->native_bytes[ordinal]);
    if (holding.limit_bytes == 0 && budget->limit_bytes != UINT64_MAX)
      holding.limit_bytes = budget->limit_bytes;
  }
  holding.framework = framework_memory(ordinal, kFrameworkAnswers);
  if (holding.framework)
    note_framework_course(ordinal, holding.framework->used_bytes, holding.framework->held_bytes);
  return holding;
}

StatusPublisher::StatusPublisher(Ledger& ledger, uint64_t guarantee_bytes) : ledger_(ledger) {
  const char* mode = std::getenv("SPILLWAY_MODE");
  char host[sizeof entry_.host] = "";
  ::gethostname(host, sizeof host - 1);
  set(entry_.mode, mode == nullptr || *mode == '\0' ? "rescue" : mode);
  set(entry_.program, command_line());
  set(entry_.host, host);
  set(entry_.container, container());
  replaces_ = std::string_view(entry_.mode) == "replace";
  entry_.guarantee_bytes = guarantee_bytes;
  if (const char* visible = std::getenv("CUDA_VISIBLE_DEVICES")) visible_ = visible;
}

// Not where LibTorch's allocator is about to be replaced: that is the program's thread's to do.
void StatusPublisher::look_for_framework() {
  if (replaces_ || framework_is_prepared() || Clock::now() < next_look_) return;
  prepare_framework();
  next_look_ = Clock::now() + kLookForFramework;
}

bool StatusPublisher::show_device(const driver::Table& table, int ordinal, LedgerDevice* device,
                                  Holding* found) {
  const PrimaryContextGuard used(table, ordinal);
  const std::optional<DeviceUuid> uuid = uuid_of(table, ordinal);
  if (!used.current() || !uuid) return false;
  const bool same = device->uuid == *uuid;
  const LedgerDevice before = *device;
  *device = {.uuid = *uuid, .number = number_on_machine(visible_ ? visible_->c_str() : nullptr, ordinal)};
  char name[sizeof device->name] = "";
  if (table.cuDeviceGetName(name, sizeof name, ordinal) == CUDA_SUCCESS) set(device->name, name);
  std::optional<uint64_t> driver_free;
  if (const auto told = free_memory_.of(table, ordinal)) {
    device->device_bytes = told->total_bytes;
    driver_free = device->free_bytes = told->free_bytes;
  }
  const Holding holding = *found = holding_of(ordinal, driver_free);
  device->held_bytes = holding.held_bytes;
  device->cached_bytes = holding.cached_bytes;
  device->spilled_bytes = holding.spilled_bytes;
  device->spilled_peer_bytes = holding.spilled_peer_bytes;
  device->spilled_nvme_bytes = holding.spilled_nvme_bytes;
  device->limit_bytes = holding.limit_bytes;
  device->native_bytes = holding.native_bytes;
  if (holding.framework) {
    device->framework_held_bytes = holding.framework->held_bytes;
    device->framework_cached_bytes = holding.framework->held_bytes -
                                     std::min(holding.framework->held_bytes, holding.framework->used_bytes);
    entry_.framework_is_known = 1;
  } else if (same) {  // its allocator was busy: what it said last
    device->framework_held_bytes = before.framework_held_bytes;
    device->framework_cached_bytes = before.framework_cached_bytes;
  }
  return true;
}

void StatusPublisher::show_devices(const driver::Table& table) {
  const int count = device_count(table);
  uint64_t shown = 0;
  std::array<Holding, LedgerEntry::kMostDevices> holdings;
  for (int ordinal = 0; ordinal < count && shown < LedgerEntry::kMostDevices; ++ordinal)
    if (show_device(table, ordinal, &entry_.devices[shown], &holdings[shown])) ++shown;
  const bool framework = framework_may_give(std::span(holdings).first(shown), entry_.guarantee_bytes);
  for (uint64_t i = 0; i < shown; ++i)
    entry_.devices[i].spare_bytes = spare_of(holdings[i], entry_.guarantee_bytes, framework);
  for (uint64_t rest = shown; rest < entry_.device_count; ++rest) entry_.devices[rest] = {};
  entry_.device_count = shown;
}

void StatusPublisher::show_ladder(Ladder& ladder) {
  const IncidentSummary last = ladder.last_incident();
  entry_.incident = {.number = last.incident,
                     .asked_bytes = last.requested_bytes,
                     .gained_bytes = last.gained_bytes,
                     .microseconds = last.microseconds,
                     .outcome = outcome_of(last.outcome),
                     .ended_ns = static_cast<uint64_t>(last.ended.time_since_epoch().count())};
  set(entry_.incident.tried, last.story);
  size_t shown = 0;
  for (const StrategyCounts& counts : ladder.counts()) {
    if (counts.tried == 0 || shown == LedgerEntry::kMostStrategies) continue;
    LedgerStrategy& strategy = entry_.strategies[shown++];
    set(strategy.name, counts.name);
    strategy.tried = counts.tried;
    strategy.useful = counts.useful;
    strategy.bytes = counts.bytes;
    strategy.microseconds = counts.microseconds;
  }
}

void StatusPublisher::publish(bool may_call_driver, bool now) {
  if (!now && Clock::now() < next_) return;
  next_ = Clock::now() + kSoonest;
  if (const driver::Table* table = driver::process_table(nullptr); table != nullptr && may_call_driver) {
    look_for_framework();
    if (const DriverSpan span; span.begun()) show_devices(*table);
  } else {
    for (LedgerDevice& device : entry_.devices) device.spare_bytes = 0;
  }
  const spillway_incident_totals met = Process::get().incidents();
  entry_.failures = met.failures;
  entry_.rescued = met.rescued;
  entry_.rescued_bytes = met.rescued_bytes;
  set(entry_.phase, Tags::phase());
  if (Ladder* ladder = Process::get().ladder()) show_ladder(*ladder);
  ledger_.show(entry_);
}

}  // namespace spillway
