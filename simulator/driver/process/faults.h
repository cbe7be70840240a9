// Which driver calls fail on purpose, and what a call costs in virtual time.
//
// Thread-safety: none of its own; used under the simulator's lock. Ownership: none. Errors: CUresult. Units:
// ns.
#pragma once
#include <array>
#include <optional>

#include "simulator/driver/entry/functions.h"
#include "simulator/driver/machine/config.h"

namespace spillway::simulator {

// The calls that a fault plan without a name counts: those that allocate, create or map memory.
bool may_run_out(Function function);
// The implemented function that a name in a fault plan or a latency table means, with or without suffix.
Function find_configurable(std::string_view name);

class Faults {
 public:
  // Returns false when the plan names a function that the simulator does not implement.
  bool set_plan(const FaultPlan& plan);
  void set_seeded(uint64_t seed, double probability, CUresult code);
  void reset();
  // Counts a call and returns the error that it has to return, if any.
  std::optional<CUresult> on_call(Function function);

  uint64_t calls() const { return calls_; }
  uint64_t fired() const { return fired_; }

 private:
  bool seeded_fires();

  uint64_t countdown_ = 0;  // calls until the planned one; 0: no plan
  Function only_ = Function::kCount,
           older_ = Function::kCount;  // what the plan's name means, in two versions
  bool persistent_ = false, reached_ = false;
  CUresult code_ = CUDA_ERROR_OUT_OF_MEMORY;
  double probability_ = 0;
  uint64_t random_ = 0;
  CUresult seeded_code_ = CUDA_ERROR_OUT_OF_MEMORY;
  uint64_t calls_ = 0, fired_ = 0;
};

// What each function costs beside `call_ns`: a call, each GiB that the call is about, each mapping in its
// range.
class Latencies {
 public:
  uint64_t of(Function function) const { return calls_[static_cast<size_t>(function)]; }
  void set(Function function, uint64_t ns) { calls_[static_cast<size_t>(function)] = ns; }
  void set_per_gib(Function function, uint64_t ns) { gibs_[static_cast<size_t>(function)] = ns; }
  void set_per_mapping(Function function, uint64_t ns) { mappings_[static_cast<size_t>(function)] = ns; }
  uint64_t of_extent(Function function, uint64_t bytes, uint64_t mappings) const {
    constexpr double kGiB = 1 << 30;
    const auto per_gib = static_cast<double>(gibs_[static_cast<size_t>(function)]);
    return static_cast<uint64_t>(per_gib * static_cast<double>(bytes) / kGiB) +
           mappings_[static_cast<size_t>(function)] * mappings;
  }

 private:
  std::array<uint64_t, kFunctions> calls_{}, gibs_{}, mappings_{};
};

}  // namespace spillway::simulator
