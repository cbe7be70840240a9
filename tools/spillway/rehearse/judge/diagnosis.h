// Why the request that decided a rehearsal failed: by the history of allocations where that knows more, else
// by PyTorch's own figures. The text, the JSON and the page have it from here.
//
// Thread-safety: pure functions but for those that read a history's file. Errors: a history that cannot be
// read says nothing. Units: bytes.
#pragma once
#include <cstdint>
#include <optional>
#include <string>

#include "allocator/request/verdict.h"
#include "tools/spillway/history/findings/findings.h"
#include "tools/spillway/rehearse/judge/outcome.h"
#include "tools/spillway/rehearse/run/run.h"

namespace spillway::tools {

// What a report about the whole is about: the device whose request decided it, else the fullest one.
struct ShownDevice {
  const Observation* process = nullptr;
  int device = 0;
};
ShownDevice shown_of(const Rehearsal& rehearsal);

// Every event of that device; empty where none was kept.
MemoryHistory history_of(const RunOptions& options, const Rehearsal& rehearsal);
// Sets `findings`, from the history.
void look_into_history(const RunOptions& options, Rehearsal* rehearsal);

// A limit that the process has set itself, below the card's memory.
struct OwnLimit {
  bool is_fraction = false;  // torch.cuda.set_per_process_memory_fraction; else a number of bytes
  uint64_t bytes = 0;        // 0: not known
  uint64_t capacity = 0;     // of the card

  double fraction() const { return static_cast<double>(bytes) / static_cast<double>(capacity); }
};
std::optional<OwnLimit> own_limit_of(const FailureOf& failure);
// "torch.cuda.set_per_process_memory_fraction(0.25)".
std::string fraction_call(double fraction);

struct Diagnosis {
  Cause cause = Cause::kUnknown;
  std::string text;  // one line, with the bytes that decided it and what else is known
  std::optional<OwnLimit> own_limit;
  std::optional<Holder> grows;  // what a leak or a growth is of

  bool is_by_history() const { return cause == Cause::kLeak || cause == Cause::kGrowth; }
};
// Nothing where no request failed.
std::optional<Diagnosis> diagnose(const Rehearsal& rehearsal);
// The cause's name before the text, where the text does not say it.
std::string line_of(const Diagnosis& diagnosis);
// What helps, and what does not, where the cause decides that; else "".
std::string advice_of(const Diagnosis& diagnosis);

}  // namespace spillway::tools
