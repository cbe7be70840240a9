#include "simulator/driver/call.h"

#include <utility>

#include "simulator/driver/capture.h"

namespace spillway::simulator {
namespace {

thread_local Site outer_site = nullptr;
thread_local Call* current_call = nullptr;

// What a thread that only looks on calls over and over: a watchdog's polls must not move the clock.
bool only_looks(Function function) {
  switch (function) {
    case Function::cuEventQuery:
    case Function::cuEventElapsedTime_v2:
    case Function::cuEventDestroy:
    case Function::cuStreamQuery:
    case Function::cuCtxGetCurrent:
    case Function::cuCtxSetCurrent:
    case Function::cuCtxGetDevice:
    case Function::cuThreadExchangeStreamCaptureMode:
      return true;
    default:
      return false;
  }
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

void Call::unlock() {
  const std::vector<Release> due = std::exchange(machine().releases, {});
  lock_.unlock();
  for (const Release& release : due) release.function(release.argument);
}

Call::Call(Function function, Caller caller)
    : outer_(current_call), site_(outer_site ? outer_site : program_site(caller)) {
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
  if (thread_acts() || (!is_watchdog() && !only_looks(function))) {
    sim.clock.advance(sim.config.call_ns);
    ++sim.counters.acting_calls;
  } else {
    sim.watchdog.calls_again();
  }
  sim.clock.advance(latency);
  sim.counters.stall_ns += latency;
  ++sim.counters.calls[static_cast<size_t>(function)];
  if (const auto fault = sim.faults.on_call(function)) refused_ = *fault;
  if (refused_ == CUDA_SUCCESS) refused_ = check_capture(function);
}

}  // namespace spillway::simulator
