// A run's progress on a terminal: one line, drawn anew in place, below all that is printed.
//
// Thread-safety: one thread; `wipe_progress` is for signal handlers too. Errors: none. The cursor stays
// visible and at the end of the line, so that a process that is killed leaves nothing to be mended.
#pragma once
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <string>

namespace spillway::trainer {

struct Progress {
  uint64_t done = 0, steps = 0;
  double loss = 0, tokens_per_second = 0;
  double seconds_left = 0;
  std::string memory;  // "MiB 3 peak 6 of 6"; "" where nobody knows
  std::string plan;
};

// At most `columns` wide: what comes last is cut off.
std::string progress_text(const Progress& progress, size_t columns);

class ProgressLine {
 public:
  // The standard output is a terminal that can go back to a line's begin.
  static bool possible();

  ~ProgressLine() { clear(); }
  // Not more often than an eye can follow; what was left out is drawn by `redraw`.
  void show(const Progress& progress);
  void clear();   // before anything else is printed
  void redraw();  // after it

 private:
  Progress progress_;
  bool shown_ = false;  // there is a progress to draw
  std::chrono::steady_clock::time_point drawn_{};
};

// Takes the line away if it is there.
void wipe_progress() noexcept;

}  // namespace spillway::trainer
