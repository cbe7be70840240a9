// Writes a trace of Spillway's: make_trace RECORDS PATH.
//
// The program that it pretends is that of make_snapshot.py: a training run of a transformer of 32 layers,
// with a metric that keeps what it should not, and a request at the end that cannot be served. Three threads
// take turns, so that the records lie in three rings, as those of a forward and a backward pass do. The same
// RECORDS give the same trace, but for its process and its time.
#include <bit>
#include <condition_variable>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <map>
#include <mutex>
#include <random>
#include <string>
#include <thread>
#include <unordered_map>
#include <vector>

#include "trace/writer.h"

namespace {

using namespace spillway::trace;  // NOLINT(google-build-using-namespace)

constexpr uint64_t kKiB = 1 << 10, kMiB = 1 << 20, kGiB = 1 << 30, kPage = 2 * kMiB;
constexpr uint64_t kLayers = 32, kCard = 96 * kGiB, kContext = 600 * kMiB, kLastRequest = 90 * kGiB;
constexpr uint64_t kWeights[] = {96 * kMiB, 32 * kMiB, 86 * kMiB, 86 * kMiB, 86 * kMiB, 16 * kKiB, 16 * kKiB};
constexpr uint64_t kActivations[] = {33 * kMiB, 100 * kMiB, 70 * kKiB, 66 * kMiB, 33 * kMiB,
                                     33 * kMiB, 88 * kMiB,  88 * kMiB, 88 * kMiB};

struct Block {
  uint64_t address = 0, requested = 0, bytes = 0;
};

// Blocks of a power of two in pages of their own size, or of whole pages; what is freed is used again.
class Memory {
 public:
  explicit Memory(std::function<void(uint64_t)> map_page) : map_page_(std::move(map_page)) {}

  Block allocate(uint64_t requested) {
    const uint64_t bytes = (requested + 511) / 512 * 512;
    const uint64_t room = requested >= kMiB ? (bytes + kPage - 1) / kPage * kPage : std::bit_ceil(bytes);
    std::vector<uint64_t>& slots = free_[room];
    if (slots.empty()) grow(room, &slots);
    const Block block{slots.back(), requested, bytes};
    slots.pop_back();
    room_[block.address] = room;
    live_ += requested;
    rounded_ += bytes;
    return block;
  }
  void free(const Block& block) {
    free_[room_[block.address]].push_back(block.address);
    live_ -= block.requested;
    rounded_ -= block.bytes;
  }
  uint64_t live() const { return live_; }
  uint64_t rounding() const { return rounded_ - live_; }
  uint64_t cached() const { return held_ - rounded_; }
  uint64_t held() const { return held_; }

 private:
  void grow(uint64_t room, std::vector<uint64_t>* slots) {
    const uint64_t begin = next_;
    for (; next_ < begin + room; next_ += kPage) map_page_(next_);
    for (uint64_t at = begin; at < next_; at += room) slots->push_back(at);
    held_ += next_ - begin;
  }

  const std::function<void(uint64_t)> map_page_;
  std::map<uint64_t, std::vector<uint64_t>> free_;  // by room
  std::unordered_map<uint64_t, uint64_t> room_;     // by address
  uint64_t next_ = 0x7f0000000000, live_ = 0, rounded_ = 0, held_ = 0;
};

class Program {
 public:
  Program(Trace* out, uint64_t records)
      : out_(*out), records_(records), memory_([this](uint64_t page) { map(page); }) {
    for (int line = 40; line < 85; line += 5)
      forward_.push_back(
          stack("model.py:" + std::to_string(line) + " forward\n", "train.py:131 train_step\n"));
  }

  void build() {
    for (uint64_t layer = 0; layer < kLayers; ++layer)
      for (const uint64_t size : kWeights)
        for (const uint64_t place : {weights_, adam_, adam_}) allocate(size, place);
  }

  void step() {
    mark(Kind::kStepBegin, ++steps_, order_ * kNsARecord);
    std::vector<Block> saved;
    for (uint64_t layer = 0; layer < kLayers; ++layer) {
      for (size_t i = 0; i < std::size(kActivations); ++i) {
        const Block one = allocate(draw(900) * kKiB, forward_[i]),
                    other = allocate(draw(900) * kKiB, forward_[i]);
        saved.push_back(allocate(kActivations[i] + draw(64) * 512, forward_[i]));
        free(one);
        free(other);
      }
    }
    allocate(3 * kMiB + 77 * kKiB, metric_);
    for (; !saved.empty(); saved.pop_back()) {
      const Block gradient = allocate(draw(40) * kMiB, backward_);
      free(saved.back());
      free(gradient);
    }
    mark(Kind::kStepEnd, steps_, 0);
  }

  void fail() {
    Record failed = record(Kind::kOom);
    failed.requested = failed.bytes = kLastRequest;
    failed.address = kGiB;
    failed.detail = order_ * kNsARecord;
    write_of_the_failure(failed);
    Record context = record(Kind::kOomContext);
    context.detail = out_.intern("libtorch");
    write_of_the_failure(context);
    const uint64_t rest = kCard - kContext - memory_.held();
    const std::map<Term, uint64_t> terms = {{Term::kLimit, kCard},
                                            {Term::kLive, memory_.live()},
                                            {Term::kRounding, memory_.rounding()},
                                            {Term::kStranded, 0},
                                            {Term::kPending, 0},
                                            {Term::kCached, memory_.cached()},
                                            {Term::kPools, 0},
                                            {Term::kOthers, 0},
                                            {Term::kContext, kContext},
                                            {Term::kFree, rest},
                                            {Term::kLargestExtent, rest}};
    for (const auto& [term, bytes] : terms) {
      Record line = record(Kind::kOomEquation);
      line.bytes = bytes;
      line.detail = static_cast<uint64_t>(term);
      write_of_the_failure(line);
    }
    Record asker = record(Kind::kOomSite);
    asker.detail = forward_[3];
    write_of_the_failure(asker);
    Record outcome = record(Kind::kLadderOutcome);
    outcome.detail = static_cast<uint64_t>(Outcome::kGiveUp);
    write_of_the_failure(outcome);
  }

  uint64_t written() const { return order_; }
  bool has_written(uint64_t part, uint64_t parts) const { return order_ >= records_ / parts * part; }

 private:
  static constexpr uint64_t kNsARecord = 500;

  uint64_t stack(const std::string& inner, const std::string& outer) {
    return out_.intern("/home/user/llm/" + inner + "/home/user/llm/" + outer +
                       "/home/user/llm/train.py:212 main");
  }
  uint64_t draw(uint64_t most) { return 1 + random_() % most; }
  Record record(Kind kind) {
    Record record;
    record.kind = kind;
    record.order = ++order_;
    return record;
  }
  void write_of_the_failure(Record record) {
    record.value = 1;
    out_.write(record);
  }
  void mark(Kind kind, uint64_t step, uint64_t detail) {
    Record mark = record(kind);
    mark.address = step;
    mark.value = static_cast<uint32_t>(step);
    mark.detail = detail;
    out_.write(mark);
  }
  void map(uint64_t page) {
    Record created = record(Kind::kPageCreate);
    created.bytes = kPage;
    out_.write(created);
    Record mapped = record(Kind::kPageMap);
    mapped.address = page;
    mapped.bytes = kPage;
    out_.write(mapped);
  }
  // Of the small blocks a sample has a place, as by default.
  Block allocate(uint64_t requested, uint64_t place) {
    const Block block = memory_.allocate(requested);
    Record allocated = record(Kind::kAllocate);
    allocated.address = block.address;
    allocated.bytes = block.bytes;
    allocated.requested = requested;
    out_.write(allocated);
    if (random_() % kMiB >= requested) return block;
    Record site = record(Kind::kSite);
    site.address = block.address;
    site.bytes = requested;
    site.detail = place;
    out_.write(site);
    return block;
  }
  void free(const Block& block) {
    memory_.free(block);
    Record freed = record(Kind::kFree);
    freed.address = block.address;
    freed.bytes = block.bytes;
    freed.requested = block.requested;
    out_.write(freed);
  }

  Trace& out_;
  const uint64_t records_;
  uint64_t order_ = 0, steps_ = 0;
  Memory memory_;
  std::mt19937_64 random_{7};
  const uint64_t weights_ = stack("model.py:120 __init__\n", "train.py:60 build\n");
  const uint64_t adam_ = stack("optim.py:40 init_state\n", "train.py:150 train_step\n");
  const uint64_t metric_ = stack("metrics.py:18 update\n", "train.py:158 train_step\n");
  const uint64_t backward_ = out_.intern("backward of MmBackward0");
  std::vector<uint64_t> forward_;
};

constexpr int kThreads = 3;

// One thread after the other; each stays until the last has ended, or the next would take its ring.
void run_in_turns(Program* program) {
  std::mutex mutex;
  std::condition_variable turned;
  int turn = 0;
  std::vector<std::thread> threads;
  for (int mine = 0; mine < kThreads; ++mine) {
    threads.emplace_back([&, mine] {
      std::unique_lock lock(mutex);
      turned.wait(lock, [&] { return turn == mine; });
      if (mine == 0) program->build();
      while (!program->has_written(static_cast<uint64_t>(mine) + 1, kThreads)) program->step();
      if (mine == kThreads - 1) program->fail();
      ++turn;
      turned.notify_all();
      turned.wait(lock, [&] { return turn == kThreads; });
    });
  }
  for (std::thread& thread : threads) thread.join();
}

}  // namespace

int main(int count, char** words) {
  const uint64_t records = count == 3 ? std::strtoull(words[1], nullptr, 10) : 0;
  if (records == 0) return std::fprintf(stderr, "usage: make_trace RECORDS PATH\n"), 2;
  std::string error;
  const uint64_t of_a_ring = std::bit_ceil(records / kThreads + 100'000);
  const auto trace =
      Trace::open(words[2],
                  {.rings = kThreads,
                   .records_per_ring = static_cast<uint32_t>(std::min(of_a_ring, uint64_t{1} << 22)),
                   .side_table_bytes = 1u << 20},
                  &error);
  if (trace == nullptr) return std::fprintf(stderr, "make_trace: %s\n", error.c_str()), 1;
  Program program(trace.get(), records);
  run_in_turns(&program);
  std::printf("%s: %llu records\n", words[2], static_cast<unsigned long long>(program.written()));
  return 0;
}
