// Traces that a test writes event by event, as a program would.
#pragma once
#include <gtest/gtest.h>

#include <map>
#include <memory>
#include <string>

#include "trace/writer.h"

namespace spillway::tools {

inline constexpr uint64_t kMiB = 1 << 20;
inline constexpr uint64_t kGiB = 1 << 30;

// Writes the story of a run, one event after the other.
class Story {
 public:
  explicit Story(const std::string& path) {
    std::string error;
    trace_ =
        trace::Trace::open(path, {.rings = 2, .records_per_ring = 1024, .side_table_bytes = 4096}, &error);
    if (!trace_) ADD_FAILURE() << error;
  }
  trace::Trace& trace() { return *trace_; }
  uint64_t name(const std::string& text) { return trace_->intern(text); }

  trace::Record event(trace::Kind kind) {
    trace::Record record;
    record.kind = kind;
    record.order = ++order_;
    return record;
  }
  void allocate(uint64_t address, uint64_t requested, uint64_t bytes) {
    trace::Record record = event(trace::Kind::kAllocate);
    record.address = address;
    record.requested = requested;
    record.bytes = bytes;
    trace_->write(record);
  }
  void free(uint64_t address, uint64_t bytes) {
    trace::Record record = event(trace::Kind::kFree);
    record.address = address;
    record.bytes = bytes;
    trace_->write(record);
  }
  void free_later(uint64_t address, uint64_t bytes, uint64_t waits_for) {
    trace::Record record = event(trace::Kind::kFreePending);
    record.address = address;
    record.bytes = bytes;
    record.value = 1;
    record.detail = waits_for;
    trace_->write(record);
  }
  void move(uint64_t address, uint64_t bytes, uint64_t tier, uint32_t result = 0) {
    trace::Record record = event(trace::Kind::kMove);
    record.address = address;
    record.bytes = bytes;
    record.requested = tier;
    record.value = result;
    trace_->write(record);
  }
  void place(uint64_t address, const std::string& stack) {
    trace::Record record = event(trace::Kind::kSite);
    record.address = address;
    record.detail = name(stack);
    trace_->write(record);
  }
  void phase(const std::string& text) {
    trace::Record record = event(trace::Kind::kPhase);
    record.detail = name(text);
    trace_->write(record);
  }
  void step(trace::Kind kind, uint64_t number, uint64_t attempt, uint64_t tokens = 0) {
    trace::Record record = event(kind);
    record.address = number;
    record.value = static_cast<uint32_t>(number);
    record.bytes = attempt;
    record.requested = 0xABCD;
    record.detail = tokens;
    trace_->write(record);
  }
  void optimizer_step(uint64_t number) {
    trace::Record record = event(trace::Kind::kOptimizerStep);
    record.address = number;
    record.detail = name("Optimizer.step#AdamW.step");
    trace_->write(record);
  }
  void oom_step(uint32_t incident, uint64_t begun) {
    trace::Record record = event(trace::Kind::kOomStep);
    record.value = incident;
    record.address = begun;
    trace_->write(record);
  }
  void memory(uint64_t live, uint64_t reserved, uint64_t limit, uint64_t peak) {
    trace::Record record = event(trace::Kind::kMemory);
    record.address = live;
    record.bytes = reserved;
    record.requested = limit;
    record.stream = peak;
    trace_->write(record);
  }
  void oom(uint32_t incident, uint64_t requested, uint64_t rounded, uint64_t missing,
           const std::string& phase = "") {
    trace::Record record = event(trace::Kind::kOom);
    record.value = incident;
    record.requested = requested;
    record.bytes = rounded;
    record.address = missing;
    record.detail = 1'000'000;
    trace_->write(record);
    trace::Record context = event(trace::Kind::kOomContext);
    context.value = incident;
    context.detail = name("libtorch");
    context.requested = phase.empty() ? 0 : name(phase);
    trace_->write(context);
  }
  void holder(uint32_t incident, const std::string& stack, uint64_t bytes, uint64_t blocks) {
    trace::Record record = event(trace::Kind::kHolder);
    record.value = incident;
    record.bytes = bytes;
    record.requested = blocks;
    record.detail = name(stack);
    trace_->write(record);
  }
  void held(uint64_t clock_ns, const std::string& stack, uint64_t bytes, uint64_t blocks) {
    trace::Record record = event(trace::Kind::kHeld);
    record.address = clock_ns;
    record.bytes = bytes;
    record.requested = blocks;
    record.detail = name(stack);
    trace_->write(record);
  }
  void all_held(uint64_t clock_ns, uint64_t bytes) {
    trace::Record record = event(trace::Kind::kHeld);
    record.flags = 1;
    record.address = clock_ns;
    record.bytes = bytes;
    trace_->write(record);
  }
  void asker(uint32_t incident, const std::string& stack) {
    trace::Record record = event(trace::Kind::kOomSite);
    record.value = incident;
    record.detail = name(stack);
    trace_->write(record);
  }
  void equation(uint32_t incident, const std::map<trace::Term, uint64_t>& terms) {
    for (const auto& [term, bytes] : terms) {
      trace::Record record = event(trace::Kind::kOomEquation);
      record.value = incident;
      record.bytes = bytes;
      record.detail = static_cast<uint64_t>(term);
      trace_->write(record);
    }
  }
  void tried(uint32_t incident, const std::string& strategy, uint8_t flags, uint64_t offered, uint64_t gained,
             uint64_t us) {
    trace::Record record = event(trace::Kind::kLadderStep);
    record.value = incident;
    record.detail = name(strategy);
    record.flags = flags;
    record.requested = offered;
    record.bytes = gained;
    record.address = us;
    trace_->write(record);
  }
  void outcome(uint32_t incident, trace::Outcome outcome, uint64_t gained, uint64_t us) {
    trace::Record record = event(trace::Kind::kLadderOutcome);
    record.value = incident;
    record.detail = static_cast<uint64_t>(outcome);
    record.bytes = gained;
    record.address = us;
    trace_->write(record);
  }
  void plan_change(uint64_t step, uint32_t incident, const std::string& reason) {
    trace::Record record = event(trace::Kind::kPlanChange);
    record.address = step;
    record.bytes = 0xABCD;
    record.requested = 0xABCE;
    record.value = incident;
    record.detail = name(reason);
    trace_->write(record);
  }

 private:
  std::unique_ptr<trace::Trace> trace_;
  uint64_t order_ = 0;
};

// A failure of 300 MiB on a limit of 1 GiB; `live` and `cached` as given, the rest free.
inline void fail_request(Story& story, uint32_t incident, uint64_t live, uint64_t cached, uint64_t missing) {
  story.oom(incident, 300 * kMiB - 100, 300 * kMiB, missing);
  story.equation(incident, {{trace::Term::kLimit, kGiB},
                            {trace::Term::kLive, live},
                            {trace::Term::kRounding, 100},
                            {trace::Term::kStranded, 4 * kMiB - 100},
                            {trace::Term::kCached, cached},
                            {trace::Term::kPending, 0},
                            {trace::Term::kPools, 0},
                            {trace::Term::kContext, 20 * kMiB},
                            {trace::Term::kOthers, 0},
                            {trace::Term::kFree, kGiB - live - cached - 24 * kMiB},
                            {trace::Term::kLargestExtent, 120 * kMiB}});
}

}  // namespace spillway::tools
