#include "simulator/driver/call.h"

namespace spillway::simulator {
namespace {

thread_local Site outer_site = nullptr;

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

}  // namespace

OuterSite::OuterSite(Site site) {
  outer_site = site;
}
OuterSite::~OuterSite() {
  outer_site = nullptr;
}

Call::Call(Function function, Site site) : site_(outer_site ? outer_site : site) {
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
  sim.clock.advance(sim.config.call_ns + latency);
  sim.counters.stall_ns += latency;
  if (const auto fault = sim.faults.on_call(function)) refused_ = *fault;
}

}  // namespace spillway::simulator
