// fuzz_seeds FOLDER GOLDEN: what the fuzzers start from, a folder a reader. Small files that hold one of each
// thing.
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <map>
#include <string>

#include "tools/spillway/report/trace/trace_history.h"
#include "tools/spillway/snapshot/write.h"
#include "trace/reader.h"
#include "trace/writer.h"

namespace {

namespace fs = std::filesystem;
using namespace spillway;
using trace::Kind;
using trace::Outcome;
using trace::Record;
using trace::Term;

constexpr uint64_t kMiB = uint64_t{1} << 20;
constexpr uint64_t kBase = 0x7f0000000000;

void write_text(const fs::path& path, const std::string& text) {
  fs::create_directories(path.parent_path());
  std::ofstream file(path, std::ios::binary);
  if (!(file << text)) {
    std::cerr << "fuzz_seeds: " << path << " cannot be written\n";
    std::exit(1);
  }
}

// A small trace, a record after the other.
class Story {
 public:
  explicit Story(const fs::path& path) {
    fs::create_directories(path.parent_path());
    fs::remove(path);
    std::string error;
    trace_ = trace::Trace::open(path, {.rings = 1, .records_per_ring = 64, .side_table_bytes = 4096}, &error);
    if (trace_ == nullptr) {
      std::cerr << "fuzz_seeds: " << error << '\n';
      std::exit(1);
    }
    trace_->set("PYTORCH_ALLOC_CONF", "max_split_size_mb:128,roundup_power2_divisions:[256:1,>:4]");
  }

  uint64_t name(const std::string& text) { return trace_->intern(text); }
  void add(Kind kind, Record record) {
    record.kind = kind;
    record.order = ++order_;
    trace_->write(record);
  }
  void allocate(uint64_t address, uint64_t bytes, const std::string& stack) {
    add(Kind::kAllocate, {.address = address, .bytes = bytes, .requested = bytes - 12});
    if (!stack.empty()) add(Kind::kSite, {.address = address, .bytes = bytes, .detail = name(stack)});
  }
  void free(Kind kind, uint64_t address, uint64_t bytes) {
    add(kind, {.address = address, .bytes = bytes, .requested = bytes - 12});
  }
  void map(Kind kind, uint64_t address, uint64_t bytes) { add(kind, {.address = address, .bytes = bytes}); }
  void step(Kind kind, uint64_t number, uint64_t attempt, uint64_t detail) {
    add(kind, {.address = number,
               .bytes = attempt,
               .requested = 0xABCD,
               .detail = detail,
               .value = static_cast<uint32_t>(number)});
  }
  void memory(uint64_t live, uint64_t reserved, uint64_t limit) {
    add(Kind::kMemory, {.address = live, .bytes = reserved, .requested = limit, .stream = reserved});
  }
  void fail(uint32_t incident, uint64_t live, const std::string& library) {
    add(Kind::kOom, {.address = 2 * kMiB,
                     .bytes = 4 * kMiB,
                     .requested = 4 * kMiB,
                     .detail = 1'000'000,
                     .value = incident});
    add(Kind::kOomContext,
        {.bytes = 1, .requested = name("forward"), .detail = name(library), .value = incident});
    const std::map<Term, uint64_t> terms = {{Term::kLimit, 64 * kMiB},
                                            {Term::kLive, live},
                                            {Term::kRounding, 0},
                                            {Term::kStranded, kMiB},
                                            {Term::kCached, 2 * kMiB},
                                            {Term::kPending, 0},
                                            {Term::kPools, 0},
                                            {Term::kContext, kMiB},
                                            {Term::kOthers, 0},
                                            {Term::kFree, 60 * kMiB - live},
                                            {Term::kLargestExtent, kMiB},
                                            {Term::kSpilled, kMiB}};
    for (const auto& [term, bytes] : terms)
      add(Kind::kOomEquation, {.bytes = bytes, .detail = static_cast<uint64_t>(term), .value = incident});
    add(Kind::kOomSite, {.detail = name("model.py:47 forward\ntrain.py:9 main"), .value = incident});
  }
  void tried(uint32_t incident, const std::string& strategy, uint8_t flags, uint64_t gained) {
    add(Kind::kLadderStep, {.address = 12,
                            .bytes = gained,
                            .requested = 2 * kMiB,
                            .detail = name(strategy),
                            .value = incident,
                            .flags = flags});
  }
  void refused(uint32_t incident) {
    add(Kind::kRefusal,
        {.requested = name("the budget is used up"), .detail = name("spill_to_host"), .value = incident});
  }
  void held(uint32_t incident) {
    add(Kind::kHolder, {.address = 1,
                        .bytes = 8 * kMiB,
                        .requested = 2,
                        .detail = name("model.py:47 forward\ntrain.py:9 main"),
                        .value = incident});
  }
  void end(uint32_t incident, Outcome outcome) {
    add(Kind::kLadderOutcome, {.address = 40,
                               .bytes = outcome == Outcome::kGranted ? 4 * kMiB : 0,
                               .requested = 4 * kMiB,
                               .detail = static_cast<uint64_t>(outcome),
                               .value = incident});
  }

 private:
  std::unique_ptr<trace::Trace> trace_;
  uint64_t order_ = 0;
};

// Each step leaves a block behind, until a request fails for good.
void write_leak(const fs::path& path) {
  Story story(path);
  story.map(Kind::kSegmentReserve, kBase, 64 * kMiB);
  story.map(Kind::kPageMap, kBase, 16 * kMiB);
  for (uint64_t step = 1; step <= 5; ++step) {
    story.step(Kind::kStepBegin, step, 0, step * 1000);
    story.allocate(kBase + step * 2 * kMiB, 2 * kMiB, "model.py:47 forward\ntrain.py:9 main");
    story.allocate(kBase, 512, step == 1 ? "data.py:3 load" : "");
    story.free(step == 2 ? Kind::kFreePending : Kind::kFree, kBase, 512);
    if (step == 2) story.free(Kind::kFree, kBase, 512);
    story.step(Kind::kStepEnd, step, 0, 4096);
  }
  story.memory(10 * kMiB, 16 * kMiB, 64 * kMiB);
  story.add(Kind::kHeld,
            {.address = 5, .bytes = 8 * kMiB, .requested = 2, .detail = story.name("model.py:47 forward")});
  story.add(Kind::kHeld, {.address = 5, .bytes = 10 * kMiB, .flags = 1});
  story.fail(1, 10 * kMiB, "libtorch");
  story.tried(1, "release_cache", 1, 0);
  story.refused(1);
  story.held(1);
  story.end(1, Outcome::kGiveUp);
}

// Rescued, unwound, undecided; other kinds of records.
void write_rescues(const fs::path& path) {
  Story story(path);
  story.add(Kind::kPhase, {.detail = story.name("backward")});
  story.fail(1, 20 * kMiB, "libtorch");
  story.tried(1, "release_cache", 1, 4 * kMiB);
  story.end(1, Outcome::kGranted);
  story.fail(2, 30 * kMiB, "libtorch");
  story.tried(2, "recompute", 2, 0);
  story.end(2, Outcome::kUnwind);
  story.add(Kind::kPlanChange,
            {.address = 2, .bytes = 1, .requested = 2, .detail = story.name("recompute"), .value = 2});
  story.map(Kind::kPageCreate, 0, 2 * kMiB);
  story.add(Kind::kDriverFailure, {.bytes = 2 * kMiB, .detail = story.name("cuMemCreate"), .value = 2});
  story.add(Kind::kMove, {.address = kBase, .bytes = 2 * kMiB, .requested = 1});
  story.add(Kind::kNote, {.detail = story.name("a note")});
  story.map(Kind::kPageUnmap, kBase, 2 * kMiB);
  story.map(Kind::kSegmentRelease, kBase, 64 * kMiB);
  story.fail(3, 40 * kMiB, "libtorch");
}

// A driver's call of another library.
void write_call(const fs::path& path) {
  Story story(path);
  story.fail(1, 20 * kMiB, "libnccl.so.2");
  story.end(1, Outcome::kGiveUp);
}

tools::MemoryHistory small_history() {
  tools::MemoryHistory history;
  history.settings["PYTORCH_ALLOC_CONF"] = "expandable_segments:True";
  history.stacks.push_back({{"forward", "model.py", 47}, {"main", "train.py", 9}});
  tools::DeviceHistory& device = history.devices[0];
  const tools::HistoryBlock used{kBase, kMiB, kMiB - 12, tools::BlockState::kAllocated, 1};
  const tools::HistoryBlock idle{kBase + kMiB, kMiB, 0, tools::BlockState::kFree, 0};
  device.segments.push_back({kBase, 2 * kMiB, 0, {0, 0}, true, false, {used, idle}});
  using enum tools::Action;
  for (const auto& [action, address, size] : {std::tuple{kSegmentAllocate, kBase, 2 * kMiB},
                                              {kAllocate, kBase + kMiB, kMiB},
                                              {kAllocate, kBase, kMiB - 12},
                                              {kFreeRequested, kBase + kMiB, kMiB},
                                              {kFreeCompleted, kBase + kMiB, kMiB},
                                              {kOutOfMemory, kMiB, 4 * kMiB}}) {
    tools::HistoryEvent event;
    event.action = action;
    event.stack = 1;
    event.address = address;
    event.size = size;
    event.microseconds = device.events.size() * 100;
    device.events.push_back(event);
  }
  return history;
}

void write_snapshots(const fs::path& folder, const fs::path& golden, const fs::path& trace) {
  write_text(folder / "small", tools::snapshot_of(small_history()));
  trace::Contents contents;
  std::string error;
  if (trace::read(trace, &contents, &error))
    write_text(folder / "trace", tools::snapshot_of(tools::history_of(contents)));
  fs::copy_file(golden / "snapshot.pickle", folder / "golden", fs::copy_options::overwrite_existing);
}

void write_streams(const fs::path& folder) {
  write_text(folder / "small", "a 7 100 3\nstep\na 9 600 0\nf 7\n");
  std::string steps;
  for (int i = 0; i < 6; ++i) {
    const std::string id = std::to_string(i);
    steps += "step\na " + id + " " + std::to_string((i % 3 + 1) * 3 * kMiB) + " 0\na 1" + id + " 4000 1\n";
    if (i % 2 == 1) steps += "f " + id + "\nf 1" + id + "\n";
  }
  write_text(folder / "steps", steps);
  write_text(folder / "settings", steps + "max_split_size_mb:128,roundup_power2_divisions:[256:1,>:4]");
}

}  // namespace

int main(int count, char** words) {
  if (count != 3) {
    std::cerr << "fuzz_seeds FOLDER GOLDEN\n";
    return 2;
  }
  const fs::path folder = words[1], golden = words[2];
  write_leak(folder / "trace" / "leak");
  write_rescues(folder / "trace" / "rescues");
  write_call(folder / "trace" / "call");
  Story(folder / "trace" / "empty");
  write_snapshots(folder / "snapshot", golden, folder / "trace" / "leak");
  write_streams(folder / "stream");
  fs::create_directories(folder / "rmm");
  fs::copy_file(golden / "rmm.dev1.csv", folder / "rmm" / "golden", fs::copy_options::overwrite_existing);
  write_text(
      folder / "rmm" / "small",
      "7,10:00:01.000000,allocate,0x7f0000000000,1024,0x0\n"
      "7,10:00:02.000000,allocate failure,0x0,4096,0x0\n7,10:00:03.000000,free,0x7f0000000000,1024,0x0\n");
}
