#include "simulator/driver/entry/call.h"

#include <array>
#include <string_view>
#include <utility>

#include "simulator/driver/graph/capture.h"

namespace spillway::simulator {
namespace {

thread_local Site outer_site = nullptr;
thread_local Call* current_call = nullptr;

constexpr bool asks_by_name(std::string_view name) {
  if (name.starts_with("cuEventDestroy") || name.starts_with("cuEventElapsedTime")) return true;
  for (const std::string_view part : {"Get", "Query", "CtxPush", "CtxPop", "CtxSetCurrent",
                                      "PrimaryCtxRetain", "PrimaryCtxRelease", "ThreadExchange"})
    if (name.find(part) != std::string_view::npos) return true;
  return false;
}

// What a thread that only looks on calls over and over: neither a watchdog's polls nor somebody who watches
// how much is free may move the clock, and a program that does nothing else stands still.
// At namespace scope: in the function it would be made anew at each call.
constexpr auto kAsks = [] {
  std::array<bool, kFunctions> asks{};
  size_t at = 0;
#define SPILLWAY_DRIVER_FUNCTION(result, name, parameters, arguments) asks[at++] = asks_by_name(#name);
#include "driver/functions.inc"
#undef SPILLWAY_DRIVER_FUNCTION
  return asks;
}();

constexpr bool only_asks(Function function) {
  return kAsks[static_cast<size_t>(function)];
}

// These answer before cuInit.
bool needs_initialisation(Function function) {
  switch (function) {
    case Function::cuInit:
    case Function::cuDriverGetVersion:
    case Function::cuGetProcAddress:
    case Function::cuGetErrorName:
    case Function::cuGetErrorString:
    case Function::cuGetExportTable:
      return false;
    default:
      return true;
  }
}

// As code with frame pointers lays them out: the caller's frame, then the return address.
struct Frame {
  const Frame* caller;
  Site return_address;
};

// The program's own call: the simulated runtime, which is built with frame pointers, is stepped over.
Site program_site(Caller caller) {
  const CodeRange& runtime = machine().runtime_code;
  constexpr int kDeepest = 16;
  const auto* frame = static_cast<const Frame*>(caller.frame);
  for (int depth = 0; runtime.holds(caller.site) && depth < kDeepest; ++depth) {
    frame = frame->caller;
    caller.site = frame->return_address;
  }
  return caller.site;
}

}  // namespace

OuterSite::OuterSite(Caller caller) {
  outer_site = program_site(caller);
}

OuterSite::~OuterSite() {
  outer_site = nullptr;
}

Call* Call::current() {
  return current_call;
}

Call::~Call() {
  if (!reads_.empty()) report_host_reads();
  if (lock_.owns_lock()) unlock();
  for (const HostRead& read : reads_) tell_observer(read);
  current_call = outer_;
}

void refuse_destroyed(const void* handle) {
  if (current_call != nullptr) machine().destroyed.check(handle, current_call->name(), current_call->site());
}

void Call::unlock() {
  const std::vector<Release> due = std::exchange(machine().releases, {});
  lock_.unlock();
  for (const Release& release : due) release.function(release.argument);
}

void Call::charge(uint64_t ns) {
  if (is_beside()) return;
  machine().clock.advance(ns);
  machine().counters.stall_ns += ns;
}

void Call::charge_extent(uint64_t bytes, uint64_t mappings) {
  charge(machine().latencies.of_extent(function_, bytes, mappings));
}

void Call::charge_pinning(uint64_t bytes) {
  const double gbs = machine().config.bandwidth.pin;  // as many bytes a ns
  if (gbs > 0) charge(static_cast<uint64_t>(static_cast<double>(bytes) / gbs));
}

Call::Call(Function function, Caller caller)
    : outer_(current_call), function_(function), site_(outer_site ? outer_site : program_site(caller)) {
  current_call = this;
  Machine& sim = machine();
  if (sim.forked) {
    if (needs_initialisation(function) || function == Function::cuInit) refused_ = CUDA_ERROR_NOT_INITIALIZED;
    return;
  }
  lock_ = std::unique_lock(sim.mutex);
  if (!sim.initialised) {
    if (needs_initialisation(function)) refused_ = CUDA_ERROR_NOT_INITIALIZED;
    return;
  }
  const uint64_t latency = sim.latencies.of(function);
  if (is_beside()) {
    ++sim.counters.acting_calls;
  } else if (thread_acts() || (!is_watchdog() && !only_asks(function))) {
    sim.clock.advance(sim.config.call_ns);
    if (!only_asks(function)) ++sim.counters.acting_calls;
  } else {
    sim.watchdog.calls_again();
  }
  charge(latency);
  ++sim.counters.calls[static_cast<size_t>(function)];
  if (const auto fault = sim.faults.on_call(function)) refused_ = *fault;
  if (refused_ == CUDA_SUCCESS) refused_ = check_capture(function);
}

}  // namespace spillway::simulator
