#include "trainer/plan/estimates/late_updates.h"

#include <algorithm>
#include <cmath>

namespace spillway::trainer {
namespace {

// Tiles in a row.
struct Run {
  double end = 0;      // tiles of all runs up to this one's end
  double updated = 0;  // when it is
};

// Fine enough for slots to become free in them, and for an update beside the next copies.
int runs_of(const LateUpdate& one, double slots) {
  constexpr double kLeast = 8, kMost = 64;
  return int(std::clamp(std::ceil(4 * one.tiles / slots), kLeast, kMost));
}

}  // namespace

double shown_by_late_updates(const std::vector<LateUpdate>& updates, double slots) {
  std::vector<Run> runs;
  size_t freed = 0;                         // runs whose slots all later ones may have
  double tiles = 0, arrived = 0, done = 0;  // the copies so far, the device
  double computed = 0;
  for (const LateUpdate& one : updates) {
    const int count = runs_of(one, slots);
    for (int i = 0; i < count; ++i) {
      tiles += one.tiles / count;
      while (freed < runs.size() && runs[freed].end <= tiles - slots) ++freed;
      const double has_slots = freed > 0 ? runs[freed - 1].updated : 0;
      arrived = std::max(arrived, has_slots) + one.link / count;
      done = std::max(done, arrived) + one.update / count;
      runs.push_back({tiles, done});
    }
    done += one.forward;
    computed += one.update + one.forward;
  }
  return done - computed;
}

}  // namespace spillway::trainer
