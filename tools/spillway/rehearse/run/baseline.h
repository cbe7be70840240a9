// The memory of a program as it was, kept in a file of the project, and what has grown since.
//
// Thread-safety: pure functions but for the two that touch a file. Errors: text. Units: bytes.
#pragma once
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "tools/spillway/rehearse/judge/outcome.h"
#include "tools/spillway/rehearse/run/settings.h"

namespace spillway::tools {

struct DeviceBaseline {
  uint64_t peak = 0, allocated = 0;
  // At the peak, by file and function: line numbers change with every edit.
  std::map<std::string, uint64_t> places;
};
struct Baseline {
  Settings settings;                              // a baseline says nothing of a run under others
  std::map<std::string, DeviceBaseline> devices;  // by card: "GPU 0"
};

Baseline baseline_of(const RunOptions& options, const Rehearsal& rehearsal);

std::string baseline_text(const Baseline& baseline);
// Nothing and `error` for what is no baseline.
std::optional<Baseline> read_baseline(const std::string& path, std::string* error);

// "2%" of the baseline, or a size.
struct Tolerance {
  double share = 0.02;
  uint64_t bytes = 0;
  uint64_t of(uint64_t baseline) const {
    return bytes + static_cast<uint64_t>(share * static_cast<double>(baseline));
  }
};
std::optional<Tolerance> parse_tolerance(const std::string& text);

// A place of the program that had more bytes at the peak than in the baseline.
struct GrownPlace {
  std::string place;
  uint64_t before = 0, after = 0;
};

enum class Judged {
  kPassed,
  kPassedIf,  // on a condition that `text` says
  kFailed,
  kNot,  // the run is no measure of it
};

// One thing that check asks, and how it came out.
struct Finding {
  std::string name;  // "GPU 0: peak against the budget"
  Judged judged = Judged::kPassed;
  std::string text;  // with the bytes
  std::vector<GrownPlace> grown;
};

// Of a program that did not reach its end as a program that fits does.
Finding budget_not_judged(const std::string& device);
Finding baseline_not_judged(const std::string& device);
Finding within_budget(const std::string& device, uint64_t peak, uint64_t budget);
// For a device of the baseline that this run did not use.
Finding no_longer_used(const std::string& device);
// Both the whole card's peak and what PyTorch had in use; `grown` has what grew, most first.
Finding within_baseline(const std::string& device, const DeviceBaseline& now, const DeviceBaseline* before,
                        const Tolerance& tolerance);

}  // namespace spillway::tools
