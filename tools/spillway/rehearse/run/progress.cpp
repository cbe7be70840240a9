#include "tools/spillway/rehearse/run/progress.h"

#include <algorithm>
#include <cstdio>

#include "allocator/request/verdict.h"
#include "tools/spillway/rehearse/judge/observation.h"

namespace spillway::tools {

void Progress::show() {
  if (!shown_) return;
  std::vector<std::string> damaged;
  uint64_t steps = 0, peak = 0;
  for (const Observation& process : read_observations(folder_, &damaged)) {
    steps = std::max(steps, process.steps);
    for (const auto& [ordinal, device] : process.devices) peak = std::max(peak, process.peak_of(ordinal));
  }
  const auto seconds =
      std::chrono::duration_cast<std::chrono::seconds>(std::chrono::steady_clock::now() - start_).count();
  std::fprintf(stderr, "\r\033[Krehearsing: %lld s, step %llu, peak %s", static_cast<long long>(seconds),
               static_cast<unsigned long long>(steps), size_text(peak).c_str());
  std::fflush(stderr);
  drawn_ = true;
}

void Progress::clear() {
  if (drawn_) std::fputs("\r\033[K", stderr);
  drawn_ = false;
}

}  // namespace spillway::tools
