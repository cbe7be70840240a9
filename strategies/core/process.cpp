#include "strategies/core/process.h"

#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "allocator/pages/libraries_share.h"
#include "allocator/tiers/tiers.h"
#include "strategies/budget/budget.h"
#include "strategies/budget/host_budget.h"
#include "strategies/framework/framework.h"
#include "strategies/host_memory_ahead.h"
#include "strategies/processes/process_service.h"

namespace spillway {
namespace {
thread_local char error_text[512] = "";

// Processes of one program share the machine: torchrun and Slurm say how many there are.
unsigned processes_here() {
  for (const char* name : {"LOCAL_WORLD_SIZE", "SLURM_NTASKS_PER_NODE", "OMPI_COMM_WORLD_LOCAL_SIZE"})
    if (const char* value = std::getenv(name); value != nullptr && std::atoi(value) > 0)
      return static_cast<unsigned>(std::atoi(value));
  return 1;
}

// By the ledger. Of a program's several processes each has a device of its own, which it may be about to use.
bool nobody_uses(const DeviceUuid& device) {
  std::vector<LedgerMember> members;
  std::string why_not;
  if (processes_here() != 1 || ProcessService::ledger() == nullptr ||
      read_ledger(ledger_name(), &members, &why_not) != LedgerRead::kRead)
    return false;
  const auto may_use = [&](const LedgerMember& member) {
    if (member.process == static_cast<uint64_t>(::getpid())) return false;
    const auto* shown = member.entry.devices.begin();
    const auto* end = shown + std::min<uint64_t>(member.entry.device_count, LedgerEntry::kMostDevices);
    return !member.has_entry ||
           std::any_of(shown, end, [&](const LedgerDevice& used) { return used.uuid == device; });
  };
  return std::none_of(members.begin(), members.end(), may_use);
}

// False: there is to be none, or there can be none, which is said.
bool open_page_file(Allocator& allocator, const Environment& environment) {
  if (environment.nvme_bytes == 0) return false;
  std::string why_not;
  if (use_page_file(allocator, environment.nvme_folder, environment.nvme_bytes, &why_not)) return true;
  std::fprintf(stderr, "spillway: nothing is moved to a file: SPILLWAY_NVME: %s\n", why_not.c_str());
  return false;
}

void write_versions(const driver::Table& table, trace::Trace* trace) {
  int version = 0;
  table.cuDriverGetVersion(&version);
  trace->set("spillway", SPILLWAY_VERSION_TEXT);
  trace->set("driver", "CUDA " + std::to_string(version / 1000) + "." + std::to_string(version % 1000 / 10) +
                           (table.simulator != nullptr ? ", simulated" : ""));
  if (const std::string framework = framework_version(); !framework.empty()) trace->set("pytorch", framework);
}

// Times of a simulated card mean nothing unless its kernels are timed: no rescue is refused for them then,
// unless the user asks for it.
bool times_mean_something(const driver::Table& table) {
  return table.simulator == nullptr || table.simulator->operators_take_time() == SPILLWAY_SIMULATOR_TIMED;
}

// Leaves `trace` null where none is wanted, or where memory can be rescued without it.
bool open_trace(Environment* environment, std::unique_ptr<trace::Trace>* trace, std::string* error) {
  if (environment->trace_path.empty()) return true;
  *trace = trace::Trace::open(environment->trace_path, {}, error);
  if (*trace != nullptr) return true;
  if (environment->trace_needed) return false;
  std::fprintf(stderr, "spillway: this process will have no report: %s\n", error->c_str());
  environment->trace_path.clear();
  return true;
}

Pins pins() {
  return Process::get().tags().pins();
}
}  // namespace

spillway_status refuse(spillway_status status, std::string_view text) {
  const size_t length = std::min(text.size(), sizeof(error_text) - 1);
  std::memcpy(error_text, text.data(), length);
  error_text[length] = '\0';
  return status;
}

const char* last_error() {
  return error_text;
}

spillway_status to_c(Status status) {
  switch (status) {
    case Status::kOk:
      return SPILLWAY_OK;
    case Status::kInvalid:
      return SPILLWAY_INVALID;
    case Status::kNotFound:
      return SPILLWAY_NOT_FOUND;
    case Status::kOutOfMemory:
      return SPILLWAY_OUT_OF_MEMORY;
    case Status::kUnwind:
      return SPILLWAY_UNWIND;
    case Status::kUnavailable:
      return SPILLWAY_UNAVAILABLE;
    case Status::kDriverFailed:
      return SPILLWAY_DRIVER_FAILED;
    case Status::kFileFailed:
      return SPILLWAY_FILE_FAILED;
  }
  return SPILLWAY_INVALID;
}

Process& Process::get() {
  static auto* process = new Process();
  return *process;
}

spillway_status Process::start() {
  if (allocator() != nullptr) [[likely]]
    return SPILLWAY_OK;
  const Locked guard(mutex_);
  return allocator() != nullptr ? SPILLWAY_OK : start_locked();
}

spillway_status Process::start_locked() {
  Environment environment;
  std::string error;
  if (!read_environment(&environment, &error)) return refuse(SPILLWAY_INVALID, error);
  driver::LoadError load;
  const driver::Table* table = driver::process_table(&load);
  if (table == nullptr) return refuse(SPILLWAY_UNAVAILABLE, load.text);
  std::unique_ptr<trace::Trace> trace;
  if (!open_trace(&environment, &trace, &error)) return refuse(SPILLWAY_INVALID, "SPILLWAY_TRACE: " + error);
  auto* allocator = new Allocator(*table);
  auto* ladder = new Ladder(*allocator);
  environment_ = environment;
  constexpr double kMostOnCard = 10;
  const bool timed = times_mean_something(*table);
  most_slowdown_ = environment.most_slowdown.value_or(timed ? kMostOnCard : 0);
  time_steps(*allocator, timed || most_slowdown_ != 0);
  add_strategies(*allocator, ladder);
  set_pins(*allocator, &pins);
  ladder->set_phase_source(&Tags::phase);
  allocator->set_budget(process_budget());
  leave_to_libraries(*allocator, left_to_libraries());
  follow_program_streams(*allocator);
  if (environment_.handles) allocator->set_handle_rule(*environment_.handles);
  use_driver_memory(*allocator, environment_.driver_memory);
  allocator->limit_all(environment.limit_bytes);
  allocator->set_handler(ladder);
  if (trace != nullptr) {
    write_versions(*table, trace.get());
    trace->set("limit", std::to_string(environment.limit_bytes));
    if (const char* names = std::getenv("SPILLWAY_STRATEGIES")) trace->set("strategies", names);
    if (environment.driver_memory != DriverMemory::kNoPools)
      trace->set("legacy_ipc", environment.driver_memory == DriverMemory::kEveryPool ? "all" : "pools");
    const std::optional<uint64_t> stacks = environment.stack_interval_bytes;
    trace->set("stacks", !stacks ? "none" : *stacks == 0 ? "all" : std::to_string(*stacks));
  }
  allocator->set_trace(trace.get());
  if (const auto interval = environment.stack_interval_bytes; trace != nullptr && interval)
    sites_.store(new SiteRecorder(*allocator, *trace, *interval));
  trace_ = std::move(trace);
  allocator->count_incidents(totals_);
  driver_callers_.store(new DriverCallers(*allocator, *ladder), std::memory_order_release);
  ladder_.store(ladder, std::memory_order_release);
  allocator_.store(allocator, std::memory_order_release);
  return SPILLWAY_OK;
}

void Process::add_strategies(Allocator& allocator, Ladder* ladder) {
  Environment use = environment_;
  // Who sends blocks to another device must be able to take them back.
  use.evict_guests |= use.spill_to_peer;
  use.spill_to_nvme = use.spill_to_nvme && open_page_file(allocator, use);
  const SpillLimits limits = spill_limits();
#define SPILLWAY_STRATEGY(name, maker) \
  if (use.name) ladder->add(maker);
#include "strategies/core/built_in.inc"
  if (use.spill_to_host) make_host_memory_beside(allocator, limits, [] { return get().may_spill(); });
}

void Process::use_large_handles() {
  if (!environment_.handles && environment_.divide_handles) allocator()->set_handle_rule(kLargeHandles);
}

SpillLimits Process::spill_limits() const {
  SpillLimits limits{.nobody_uses = &nobody_uses, .most_slowdown = most_slowdown()};
  if (environment_.peer_budget_bytes >= 0)
    limits.peer_bytes = static_cast<uint64_t>(environment_.peer_budget_bytes);
  if (environment_.host_budget_bytes >= 0) {
    limits.host_bytes = static_cast<uint64_t>(environment_.host_budget_bytes);
    return limits;
  }
  limits.host_bytes = default_host_budget_bytes(processes_here());
  // The program may have taken much of what there was at the start.
  limits.available = [] { return default_host_budget_bytes(processes_here()); };
  return limits;
}

void Process::count_incidents(spillway_incident_totals* totals) {
  const Locked guard(mutex_);
  totals_ = totals;
  if (allocator() != nullptr) allocator()->count_incidents(totals);
}

spillway_incident_totals Process::incidents() {
  const Locked guard(mutex_);
  if (totals_ == nullptr) return {};
  const auto read = [](uint64_t& total) {
    return std::atomic_ref<uint64_t>(total).load(std::memory_order_relaxed);
  };
  return {read(totals_->failures), read(totals_->rescued),       read(totals_->unwound),
          read(totals_->gave_up),  read(totals_->rescued_bytes), read(totals_->rescue_us)};
}

const char* Process::trace_path() const {
  return trace() == nullptr ? "" : trace()->path().c_str();
}

bool started(spillway_status* status) {
  *status = Process::get().start();
  return *status == SPILLWAY_OK;
}

void Process::write(trace::Record record) {
  trace::Trace* const open_trace = trace();
  if (open_trace == nullptr) return;
  record.order = allocator()->next_order();
  open_trace->write(record);
}

}  // namespace spillway
