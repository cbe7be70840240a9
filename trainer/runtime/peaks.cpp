#include "trainer/runtime/peaks.h"

#include <algorithm>

namespace spillway::trainer {

void PeakWatch::raise(Peaks* peaks, const spillway_memory& memory) {
  peaks->live = std::max(peaks->live, memory.peak_live);
  peaks->reserved = std::max(peaks->reserved, memory.peak_reserved);
  peaks->allocated = std::max(peaks->allocated, memory.peak_allocated);
}

void PeakWatch::watch(size_t devices) {
  run_.assign(devices, {});
  for (size_t device = 0; device < devices; ++device) core_.reset_peaks(int(device));
}

void PeakWatch::begin_step() {
  for (const spillway_memory& memory : of_step()) {
    raise(&run_[size_t(memory.device)], memory);
    core_.reset_peaks(memory.device);
  }
}

std::vector<spillway_memory> PeakWatch::of_step() const {
  std::vector<spillway_memory> all;
  all.reserve(run_.size());
  spillway_memory memory;
  for (size_t device = 0; device < run_.size(); ++device)
    if (core_.query(int(device), &memory)) all.push_back(memory);
  return all;
}

std::vector<spillway_memory> PeakWatch::of_run(std::vector<spillway_memory> now) const {
  for (spillway_memory& memory : now) {
    Peaks peaks = run_[size_t(memory.device)];
    raise(&peaks, memory);
    memory.peak_live = peaks.live;
    memory.peak_reserved = peaks.reserved;
    memory.peak_allocated = peaks.allocated;
  }
  return now;
}

}  // namespace spillway::trainer
