#include "simulator/driver/process/faults.h"

namespace spillway::simulator {
namespace {
// Programs built for CUDA 12 call the older ones of functions that CUDA 13 changed.
constexpr int kOlderVersion = 12000;
}  // namespace

bool may_run_out(Function function) {
  switch (function) {
    case Function::cuMemAlloc:
    case Function::cuMemAllocPitch:
    case Function::cuMemAllocManaged:
    case Function::cuMemAllocAsync:
    case Function::cuMemAllocFromPoolAsync:
    case Function::cuMemAllocHost:
    case Function::cuMemHostAlloc:
    case Function::cuMemHostRegister:
    case Function::cuMemAddressReserve:
    case Function::cuMemCreate:
    case Function::cuMemMap:
    case Function::cuMemSetAccess:
    case Function::cuMemImportFromShareableHandle:
    case Function::cuMemExportToShareableHandle:
      return true;
    default:
      return false;
  }
}

Function find_configurable(std::string_view name) {
  const Function current = find_function(name, CUDA_VERSION, false);
  if (current != Function::kCount && implemented(current)) return current;
  const Function exact = find_export(name);
  return exact != Function::kCount && implemented(exact) ? exact : Function::kCount;
}

bool Faults::set_plan(const FaultPlan& plan) {
  const Function only = plan.name.empty() ? Function::kCount : find_configurable(plan.name);
  if (!plan.name.empty() && only == Function::kCount) return false;
  countdown_ = plan.call;
  only_ = only;
  const Function older = find_function(plan.name, kOlderVersion, false);
  older_ = older != Function::kCount && implemented(older) ? older : only;
  persistent_ = plan.persistent;
  reached_ = false;
  code_ = plan.code;
  return true;
}

void Faults::set_seeded(uint64_t seed, double probability, CUresult code) {
  random_ = seed;
  probability_ = probability;
  seeded_code_ = code;
}

void Faults::reset() {
  *this = Faults();
}

// splitmix64: the same sequence everywhere, from any seed.
bool Faults::seeded_fires() {
  if (probability_ <= 0) return false;
  uint64_t value = (random_ += 0x9e3779b97f4a7c15u);
  value = (value ^ (value >> 30)) * 0xbf58476d1ce4e5b9u;
  value = (value ^ (value >> 27)) * 0x94d049bb133111ebu;
  value ^= value >> 31;
  return static_cast<double>(value >> 11) * 0x1.0p-53 < probability_;
}

std::optional<CUresult> Faults::on_call(Function function) {
  const bool memory_call = may_run_out(function);
  if (memory_call) ++calls_;
  const bool planned = only_ == Function::kCount ? memory_call : function == only_ || function == older_;
  bool fires = planned && reached_ && persistent_;
  if (planned && countdown_ > 0) {
    --countdown_;
    reached_ = fires = countdown_ == 0;
  }
  if (fires) {
    ++fired_;
    return code_;
  }
  if (memory_call && seeded_fires()) {
    ++fired_;
    return seeded_code_;
  }
  return std::nullopt;
}

}  // namespace spillway::simulator
