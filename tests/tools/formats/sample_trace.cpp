// sample_trace PATH: writes a small trace of Spillway's, of a program of four steps. Each keeps a block of
// 8 MiB. The second step's failure is rescued by two strategies, the last one's is not.
#include <cstdio>
#include <map>

#include "trace/writer.h"

namespace spillway::tools {
namespace {

using trace::Kind;
using trace::Outcome;
using trace::Record;
using trace::Term;

constexpr uint64_t kMiB = 1 << 20;
constexpr uint64_t kBase = 0x7f0000200000;
constexpr uint64_t kMillisecond = 1'000'000;

class Program {
 public:
  explicit Program(trace::Trace& out)
      : out_(out), stack_(out.intern("/src/model.py:12 forward\n/src/train.py:7 step")) {}

  void run() {
    out_.set("SPILLWAY_LIMIT", "64MiB");
    map(kBase, 48 * kMiB);
    for (uint64_t step = 1; step <= 4; ++step) {
      begin_step(step);
      const uint64_t kept = kBase + step * 8 * kMiB;
      allocate(kept, 8 * kMiB - 100, 8 * kMiB);
      allocate(kBase, 4 * kMiB, 4 * kMiB);
      if (step == 2) rescued();
      if (step == 4) return given_up();
      free(kBase, 4 * kMiB);
    }
  }

 private:
  Record record(Kind kind) {
    Record record;
    record.kind = kind;
    record.order = ++order_;
    return record;
  }
  void map(uint64_t address, uint64_t bytes) {
    Record mapped = record(Kind::kPageMap);
    mapped.address = address;
    mapped.bytes = bytes;
    out_.write(mapped);
  }
  void begin_step(uint64_t step) {
    Record begun = record(Kind::kStepBegin);
    begun.address = step;
    begun.value = static_cast<uint32_t>(step);
    begun.detail = step * 100 * kMillisecond;
    out_.write(begun);
  }
  void allocate(uint64_t address, uint64_t requested, uint64_t bytes) {
    Record allocated = record(Kind::kAllocate);
    allocated.address = address;
    allocated.requested = requested;
    allocated.bytes = bytes;
    out_.write(allocated);
    Record site = record(Kind::kSite);
    site.address = address;
    site.detail = stack_;
    out_.write(site);
  }
  void free(uint64_t address, uint64_t bytes) {
    Record freed = record(Kind::kFree);
    freed.address = address;
    freed.requested = freed.bytes = bytes;
    out_.write(freed);
  }

  // `rounding`: of the blocks that are live.
  void fail(uint32_t incident, uint64_t live, uint64_t rounding) {
    Record failed = record(Kind::kOom);
    failed.value = incident;
    failed.requested = failed.bytes = 16 * kMiB;
    failed.address = 8 * kMiB;
    failed.detail = incident * 200 * kMillisecond + 50 * kMillisecond;
    out_.write(failed);
    Record context = record(Kind::kOomContext);
    context.value = incident;
    context.detail = out_.intern("libtorch");
    context.requested = out_.intern("forward");
    out_.write(context);
    const std::map<Term, uint64_t> terms = {{Term::kLimit, 64 * kMiB},
                                            {Term::kLive, live},
                                            {Term::kRounding, rounding},
                                            {Term::kStranded, 0},
                                            {Term::kCached, 48 * kMiB - live - rounding},
                                            {Term::kPending, 0},
                                            {Term::kPools, 0},
                                            {Term::kContext, 8 * kMiB},
                                            {Term::kOthers, 0},
                                            {Term::kFree, 8 * kMiB},
                                            {Term::kLargestExtent, 8 * kMiB}};
    for (const auto& [term, bytes] : terms) {
      Record line = record(Kind::kOomEquation);
      line.value = incident;
      line.bytes = bytes;
      line.detail = static_cast<uint64_t>(term);
      out_.write(line);
    }
    Record asker = record(Kind::kOomSite);
    asker.value = incident;
    asker.detail = stack_;
    out_.write(asker);
  }
  void tried(uint32_t incident, const char* strategy, uint64_t gained, uint64_t microseconds) {
    Record tried = record(Kind::kLadderStep);
    tried.value = incident;
    tried.detail = out_.intern(strategy);
    tried.flags = 1;
    tried.requested = 8 * kMiB;
    tried.bytes = gained;
    tried.address = microseconds;
    out_.write(tried);
  }
  void end(uint32_t incident, Outcome outcome, uint64_t gained, uint64_t microseconds) {
    Record ended = record(Kind::kLadderOutcome);
    ended.value = incident;
    ended.detail = static_cast<uint64_t>(outcome);
    ended.bytes = gained;
    ended.address = microseconds;
    out_.write(ended);
  }

  void rescued() {
    fail(1, 20 * kMiB - 200, 200);
    tried(1, "wait-for-events", 0, 100);
    tried(1, "release-cache", 8 * kMiB, 300);
    end(1, Outcome::kGranted, 8 * kMiB, 500);
    Record sample = record(Kind::kMemory);
    sample.address = 20 * kMiB - 200;
    sample.bytes = 48 * kMiB;
    sample.requested = 64 * kMiB;
    sample.stream = 48 * kMiB;
    sample.detail = 260 * kMillisecond;
    out_.write(sample);
  }
  void given_up() {
    fail(2, 36 * kMiB - 400, 400);
    Record holder = record(Kind::kHolder);
    holder.value = 2;
    holder.bytes = 36 * kMiB - 400;
    holder.requested = 5;
    holder.detail = stack_;
    out_.write(holder);
    tried(2, "release-cache", 0, 40);
    Record refused = record(Kind::kRefusal);
    refused.value = 2;
    refused.detail = out_.intern("stitch");
    refused.requested = out_.intern("nothing to stitch");
    out_.write(refused);
    end(2, Outcome::kGiveUp, 0, 60);
  }

  trace::Trace& out_;
  const uint64_t stack_;
  uint64_t order_ = 0;
};

}  // namespace
}  // namespace spillway::tools

int main(int count, char** words) {
  if (count != 2) return 2;
  std::string error;
  const auto trace = spillway::trace::Trace::open(
      words[1], {.rings = 2, .records_per_ring = 1024, .side_table_bytes = 4096}, &error);
  if (trace == nullptr) return std::fprintf(stderr, "%s\n", error.c_str()), 1;
  spillway::tools::Program(*trace).run();
  return 0;
}
