// The planner: of all plans that fit a machine, the fastest, and beside it what else there would be.
//
// A plan is a choice on each of several axes: the micro-batch, what is on the host or on idle devices, the
// devices, how many
// micro-batches are under way there, how many layers are recomputed. The search goes through all combinations
// of the axes, and finds for each the fewest recomputed layers that fit by bisection. It knows nothing of
// memory or time but `estimate`.
//
// More memory never gives a slower plan: what fits less memory fits more, and each bisection then ends no
// further.
//
// Thread-safety: pure function. Errors: no plan that fits is an empty `best`. Units: bytes, seconds.
#pragma once
#include <cstdint>
#include <optional>
#include <vector>

#include "trainer/plan/estimate.h"
#include "trainer/plan/plan.h"

namespace spillway::trainer {

// Kept free beyond the estimate, of each device: it is at most 2.2% off, by tests/trainer/estimates.py.
inline constexpr double kPlannerMargin = 0.03;
// And for the allocator's pages of 2 MiB, which are shared by few blocks: of a small card they are a large
// part.
inline constexpr uint64_t kPlannerPages = uint64_t{6} << 20;

struct Candidate {
  Plan plan;
  std::vector<uint64_t> device_bytes;  // the peak of training and evaluation, with the margin
  uint64_t host_bytes = 0;
  uint64_t lacking_bytes = 0;       // of the device that lacks most
  uint64_t lacking_host_bytes = 0;  // 0 where the machine's host bytes are not known
  StepTime time;

  bool fits() const { return lacking_bytes == 0 && lacking_host_bytes == 0; }
  uint64_t most_device_bytes() const;
  double tokens_per_second(const Shape& shape) const;
};

struct Planned {
  std::optional<Candidate> best;
  // A row for each combination of techniques: with the largest micro-batch that fits, or else the smallest.
  // `best` is the first; then those that fit, the fastest first; then the others, by what they lack.
  std::vector<Candidate> alternatives;
  uint32_t estimates = 0;  // that the search took
};

// `floor`: the weakest guarantee of a step against one of `from`. Where it is bit exact, both batches stay
// those of `from`; otherwise the micro-batch is anything up to the batch, and the evaluation's at most that
// of `from`.
Planned find_plan(const Shape& shape, const Machine& machine, Guarantee floor, const Plan& from);

// One plan, with the evaluation's batch halved until it fits, where `floor` allows that.
Candidate candidate_of(const Shape& shape, const Machine& machine, Guarantee floor, const Plan& plan);

// `from` with the largest micro-batch that fits, up to the batch, and an evaluation's batch that does; all
// else stays. Where none fits, the only alternative has the smallest.
Planned find_micro_batch(const Shape& shape, const Machine& machine, const Plan& from);

}  // namespace spillway::trainer
