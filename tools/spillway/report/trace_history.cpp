#include "tools/spillway/report/trace_history.h"

#include <algorithm>
#include <charconv>
#include <unordered_map>

#include "tools/spillway/report/address_ranges.h"
#include "tools/spillway/report/analysis.h"
#include "tools/spillway/units.h"

namespace spillway::tools {
namespace {

using trace::Kind;
using trace::Outcome;
using trace::Record;
using trace::Term;

constexpr uint64_t kPageBytes = uint64_t{2} << 20;

uint64_t end_of(uint64_t address, uint64_t bytes) {
  return address + std::min(bytes, UINT64_MAX - address);
}

constexpr uint64_t kUnitBytes = 512;

bool makes_sense(const Record& record) {
  return record.address % kUnitBytes == 0 && record.bytes % kUnitBytes == 0 && record.bytes > 0 &&
         record.bytes <= UINT64_MAX - record.address;
}

// What the incidents say about the records of the program's failed requests.
class Failures {
 public:
  explicit Failures(const trace::Contents& contents) {
    for (Incident& incident : analyse(contents).incidents)
      incidents_.emplace(incident.number, std::move(incident));
  }
  // Of a block of Spillway's, and not rescued.
  bool is_failure(const Record& record) const {
    const Incident& incident = incidents_.at(record.value);
    return incident.term(Term::kLimit).has_value() && incident.outcome != Outcome::kGranted;
  }
  // What the allocator may hold: the limit less what others have taken of it.
  uint64_t room(const Record& record) const {
    const Incident& incident = incidents_.at(record.value);
    const uint64_t limit = incident.term(Term::kLimit).value_or(0);
    const uint64_t context = std::min(limit, incident.term(Term::kContext).value_or(0));
    return limit - context - std::min(limit - context, incident.term(Term::kOthers).value_or(0));
  }

 private:
  std::map<uint64_t, Incident> incidents_;
};

// The time of an order, by the records of one device that have a clock.
class Clock {
 public:
  void take_in(const Record& record) {
    if (record.kind == Kind::kOom && record.detail != 0) {
      begun_[record.value] = record.detail / 1000;
      note(record.order, record.detail / 1000);
    }
    const auto begun = begun_.find(record.value);
    if (record.kind == Kind::kLadderOutcome && begun != begun_.end())
      note(record.order, end_of(begun->second, record.address));
  }
  uint64_t at(uint64_t order) const {
    if (times_.empty()) return 0;
    const auto after = times_.lower_bound(order);
    if (after == times_.end()) return times_.rbegin()->second;
    if (after == times_.begin() || after->first == order) return after->second;
    const auto before = std::prev(after);
    const double share =
        static_cast<double>(order - before->first) / static_cast<double>(after->first - before->first);
    return before->second +
           static_cast<uint64_t>(share * static_cast<double>(after->second - before->second));
  }

 private:
  void note(uint64_t order, uint64_t time) {
    if (!times_.empty() && times_.rbegin()->first < order) time = std::max(time, times_.rbegin()->second);
    times_.try_emplace(order, time);
  }
  std::map<uint64_t, uint64_t> begun_, times_;
};

// One device's history, record after record.
class Rebuilder {
 public:
  Rebuilder(const Failures& failures, std::unordered_map<uint64_t, StackId>* stacks)
      : failures_(failures), stacks_(*stacks) {}

  // Before `take`: what later records tell about all.
  void learn(const Record& record) {
    clock_.take_in(record);
    if (record.kind == Kind::kAllocate || record.kind == Kind::kSegmentReserve)
      stream_from_[record.address / kPageBytes * kPageBytes] = record.stream;
  }
  void take(const Record& record);
  void begin_step() { out_.step_events.push_back(out_.events.size()); }
  DeviceHistory finish();
  uint64_t passed_over() const { return passed_over_; }
  uint64_t lost_frees() const { return lost_frees_; }

 private:
  struct Block {
    uint64_t bytes = 0, requested = 0, stream = 0;
    StackId stack = 0;
    bool pending = false;
  };
  struct Sample {
    uint64_t live = 0, known = 0, freed_older = 0;
  };

  void allocate(const Record& record);
  void free(const Record& record);
  void free_later(const Record& record);
  void change_pages(const Record& record);
  void fail(const Record& record);
  void sample(uint64_t live) { sample_ = {live, known_, freed_older_}; }
  void end_overlapped(const Record& record);
  void add(Action action, const Record& record, uint64_t address, uint64_t size, StackId stack = 0);
  void forget(std::map<uint64_t, Block>::iterator block);
  uint64_t stream_of(uint64_t address) const;
  void add_segments(uint64_t begin, uint64_t end);
  void find_free_bytes();
  void add_blocks(HistorySegment* segment) const;

  const Failures& failures_;
  std::unordered_map<uint64_t, StackId>& stacks_;
  Clock clock_;
  std::map<uint64_t, uint64_t> stream_from_;  // pages from which on it is known whose they are
  std::map<uint64_t, Block> blocks_;
  AddressRanges pages_;
  DeviceHistory out_;
  Sample sample_;
  uint64_t known_ = 0;        // requested bytes of the blocks that are live
  uint64_t freed_older_ = 0;  // of those that were allocated before the history
  uint64_t passed_over_ = 0, lost_frees_ = 0;
};

void Rebuilder::take(const Record& record) {
  switch (record.kind) {
    case Kind::kAllocate:
      return allocate(record);
    case Kind::kFree:
      return free(record);
    case Kind::kFreePending:
      return free_later(record);
    case Kind::kPageMap:
    case Kind::kPageUnmap:
      return change_pages(record);
    case Kind::kMemory:
      return sample(record.address);
    case Kind::kOom:
      return fail(record);
    case Kind::kOomEquation:
      if (record.detail == static_cast<uint64_t>(Term::kLive)) sample(record.bytes);
      return;
    default:
      return;
  }
}

void Rebuilder::add(Action action, const Record& record, uint64_t address, uint64_t size, StackId stack) {
  HistoryEvent event;
  event.action = action;
  event.address = address;
  event.size = size;
  event.stream = record.stream;
  event.microseconds = clock_.at(record.order);
  event.stack = stack;
  out_.events.push_back(event);
}

void Rebuilder::allocate(const Record& record) {
  if (!makes_sense(record)) return void(++passed_over_);
  end_overlapped(record);
  const auto stack = stacks_.find(record.detail);
  Block block{record.bytes, record.requested == 0 ? record.bytes : std::min(record.requested, record.bytes),
              record.stream, stack == stacks_.end() ? 0 : stack->second};
  add(Action::kAllocate, record, record.address, block.requested, block.stack);
  known_ += block.requested;
  blocks_[record.address] = block;
}

// The records of a thread whose ring is full are gone, other threads' are not: what lies there was freed.
void Rebuilder::end_overlapped(const Record& record) {
  auto block = blocks_.lower_bound(record.address);
  if (block != blocks_.begin()) {
    const auto before = std::prev(block);
    if (before->first + before->second.bytes > record.address) block = before;
  }
  while (block != blocks_.end() && block->first < record.address + record.bytes) {
    ++lost_frees_;
    const auto gone = block++;
    if (!gone->second.pending)
      add(Action::kFreeRequested, record, gone->first, gone->second.requested, gone->second.stack);
    add(Action::kFreeCompleted, record, gone->first, gone->second.requested, gone->second.stack);
    forget(gone);
  }
}

void Rebuilder::forget(std::map<uint64_t, Block>::iterator block) {
  if (!block->second.pending) known_ -= block->second.requested;
  blocks_.erase(block);
}

void Rebuilder::free(const Record& record) {
  const auto block = blocks_.find(record.address);
  const bool known = block != blocks_.end();
  const uint64_t requested = known ? block->second.requested : std::min(record.requested, record.bytes);
  const StackId stack = known ? block->second.stack : 0;
  if (!known) freed_older_ += requested;
  if (!known || !block->second.pending) add(Action::kFreeRequested, record, record.address, requested, stack);
  add(Action::kFreeCompleted, record, record.address, requested, stack);
  if (known) forget(block);
}

void Rebuilder::free_later(const Record& record) {
  auto block = blocks_.find(record.address);
  if (block == blocks_.end()) {
    if (!makes_sense(record)) return void(++passed_over_);
    end_overlapped(record);
    freed_older_ += record.requested;
    block = blocks_.emplace(record.address, Block{record.bytes, record.requested, record.stream}).first;
    known_ += record.requested;
  }
  if (block->second.pending) return void(++passed_over_);
  add(Action::kFreeRequested, record, record.address, block->second.requested, block->second.stack);
  known_ -= block->second.requested;
  block->second.pending = true;
}

void Rebuilder::change_pages(const Record& record) {
  if (record.value != 0) return;  // the driver refused
  if (!makes_sense(record)) return void(++passed_over_);
  const bool maps = record.kind == Kind::kPageMap;
  const uint64_t end = end_of(record.address, record.bytes);
  maps ? pages_.add(record.address, end) : pages_.remove(record.address, end);
  Record with_stream = record;
  with_stream.stream = stream_of(record.address);
  add(maps ? Action::kSegmentAllocate : Action::kSegmentFree, with_stream, record.address, record.bytes);
}

void Rebuilder::fail(const Record& record) {
  const bool failed = failures_.is_failure(record);
  add(failed ? Action::kOutOfMemory : Action::kOther, record, failed ? failures_.room(record) : 0,
      record.requested);
}

uint64_t Rebuilder::stream_of(uint64_t address) const {
  const auto after = stream_from_.upper_bound(address);
  return after == stream_from_.begin() ? 0 : std::prev(after)->second;
}

// Pages whose mapping is older than the history are known by the blocks on them.
DeviceHistory Rebuilder::finish() {
  for (const auto& [address, block] : blocks_) {
    const uint64_t end = end_of(address, block.bytes);
    pages_.add(address / kPageBytes * kPageBytes, end_of((end - 1) / kPageBytes * kPageBytes, kPageBytes));
  }
  for (const auto& [begin, end] : pages_.ends()) add_segments(begin, end);
  find_free_bytes();
  const uint64_t known = sample_.known + (freed_older_ - sample_.freed_older);
  out_.unknown_bytes = sample_.live > known ? sample_.live - known : 0;
  return std::move(out_);
}

// A failure's event holds the room so far; free is what is mapped nowhere, pages without a place included.
void Rebuilder::find_free_bytes() {
  uint64_t mapped = 0;
  for (const HistorySegment& segment : out_.segments) mapped += segment.size;
  for (auto event = out_.events.rbegin(); event != out_.events.rend(); ++event) {
    if (event->action == Action::kSegmentAllocate) mapped -= event->size;
    if (event->action == Action::kSegmentFree) mapped += event->size;
    if (event->action == Action::kOutOfMemory) event->address -= std::min(event->address, mapped);
  }
}

// Address ranges of two streams may touch; no block lies across.
void Rebuilder::add_segments(uint64_t begin, uint64_t end) {
  while (begin < end) {
    uint64_t until = end;
    const uint64_t stream = stream_of(begin);
    for (auto next = stream_from_.upper_bound(begin); next != stream_from_.end() && next->first < end;
         ++next) {
      if (next->second == stream) continue;
      const auto block = blocks_.lower_bound(next->first);
      const bool cuts = block != blocks_.begin() &&
                        end_of(std::prev(block)->first, std::prev(block)->second.bytes) > next->first;
      if (cuts) continue;
      until = next->first;
      break;
    }
    HistorySegment segment;
    segment.address = begin;
    segment.size = until - begin;
    segment.stream = stream;
    segment.large = segment.expandable = true;
    add_blocks(&segment);
    out_.segments.push_back(std::move(segment));
    begin = until;
  }
}

void Rebuilder::add_blocks(HistorySegment* segment) const {
  const uint64_t end = segment->address + segment->size;
  uint64_t at = segment->address;
  const auto leave_free = [&](uint64_t until) {
    if (until > at) segment->blocks.push_back({at, until - at, 0, BlockState::kFree, 0});
  };
  for (auto it = blocks_.lower_bound(at); it != blocks_.end() && it->first < end; ++it) {
    const auto& [address, block] = *it;
    leave_free(address);
    segment->blocks.push_back({address, block.bytes, block.requested,
                               block.pending ? BlockState::kPendingFree : BlockState::kAllocated,
                               block.stack});
    at = address + block.bytes;
  }
  leave_free(end);
}

bool is_of_memory(Kind kind) {
  return kind == Kind::kAllocate || kind == Kind::kFree || kind == Kind::kFreePending ||
         kind == Kind::kSegmentReserve || kind == Kind::kPageMap || kind == Kind::kPageUnmap ||
         kind == Kind::kOom || kind == Kind::kLadderOutcome;
}

// Stacks of the side table, each once.
std::unordered_map<uint64_t, StackId> read_stacks(const trace::Contents& contents, MemoryHistory* out) {
  const auto names = std::make_shared<const std::map<uint64_t, std::string>>(contents.names);
  out->texts = names;
  std::unordered_map<uint64_t, StackId> stacks;
  for (const Record& record : contents.records) {
    if (record.kind != Kind::kAllocate || record.detail == 0 || stacks.contains(record.detail)) continue;
    const auto text = names->find(record.detail);
    if (text == names->end()) continue;
    stacks[record.detail] = static_cast<StackId>(out->stacks.size());
    out->stacks.push_back(frames_of(text->second));
  }
  return stacks;
}

void say_what_is_missing(const trace::Contents& contents, uint64_t lost_frees, MemoryHistory* out) {
  const auto say = [&](const std::string& text) {
    if (!out->incomplete.empty()) out->incomplete += "; ";
    out->incomplete += text;
  };
  out->incomplete = contents.incomplete;
  const uint64_t lost = contents.overwritten - std::min(contents.overwritten, contents.overwritten_rare);
  if (lost + contents.dropped + contents.torn > 0)
    say("the trace holds the newest events, " +
        count_text(lost + contents.dropped + contents.torn, "is", "are") + " lost");
  for (const auto& [number, device] : out->devices)
    if (device.unknown_bytes > 0)
      say(size_text(device.unknown_bytes) + " in use on device " + std::to_string(number) +
          " were allocated before them");
  if (lost_frees > 0) say(count_text(lost_frees, "free is", "frees are") + " known by what came after");
}

}  // namespace

std::vector<StackFrame> frames_of(std::string_view text) {
  std::vector<StackFrame> frames;
  while (!text.empty()) {
    const std::string_view line = text.substr(0, text.find('\n'));
    text.remove_prefix(std::min(text.size(), line.size() + 1));
    if (line.empty()) continue;
    StackFrame frame{line, {}, 0};
    const size_t space = line.find(' '), colon = line.substr(0, space).rfind(':');
    if (space != line.npos && colon != line.npos) {
      const auto read = std::from_chars(line.data() + colon + 1, line.data() + space, frame.line);
      if (read.ec == std::errc() && read.ptr == line.data() + space)
        frame = {line.substr(space + 1), line.substr(0, colon), frame.line};
    }
    frames.push_back(frame);
  }
  return frames;
}

MemoryHistory history_of(const trace::Contents& contents) {
  MemoryHistory out;
  out.settings = contents.settings;
  const Failures failures(contents);
  auto stacks = read_stacks(contents, &out);
  std::map<int, Rebuilder> devices;
  for (const Record& record : contents.records)
    if (is_of_memory(record.kind))
      devices.try_emplace(record.device, failures, &stacks).first->second.learn(record);
  for (const Record& record : contents.records) {
    if (record.kind == Kind::kStepBegin) {
      for (auto& [number, device] : devices) device.begin_step();
      continue;
    }
    const auto device = devices.find(record.device);
    if (device != devices.end()) device->second.take(record);
  }
  uint64_t lost_frees = 0;
  for (auto& [number, device] : devices) {
    out.devices[number] = device.finish();
    out.passed_over += device.passed_over();
    lost_frees += device.lost_frees();
  }
  say_what_is_missing(contents, lost_frees, &out);
  return out;
}

}  // namespace spillway::tools
