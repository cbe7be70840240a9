#include "trace/ring_reader.h"

#include <algorithm>
#include <cstring>

namespace spillway::trace {
namespace {

constexpr uint64_t kChunkRecords = 1024;

class RingReader {
 public:
  RingReader(const ByteSource& source, const Shape& shape, uint32_t ring)
      : source_(source),
        ring_(ring),
        offset_(shape.ring_offset(ring)),
        entry_offset_(shape.directory_offset() + ring * sizeof(DirectoryEntry)),
        slots_(shape.records_per_ring) {}

  RingContents run() {
    if (!read_written(&before_)) return std::move(out_);
    const uint64_t wanted = std::min(before_ + 1, slots_);  // and the one being written
    const uint64_t room = source_.size() > offset_ ? (source_.size() - offset_) / sizeof(Record) : 0;
    if (room < wanted) note("is cut short at byte " + std::to_string(source_.size()));
    if (!read_slots(std::min(wanted, room)) || !read_written(&after_)) return std::move(out_);
    if (before_ == after_) {
      collect_still();
    } else {
      collect_moving();
    }
    if (!out_.records.empty()) out_.overwritten = out_.records.front().stamp - 1;
    return std::move(out_);
  }

 private:
  void note(const std::string& what) {
    if (out_.damage.empty()) out_.damage = "ring " + std::to_string(ring_) + " " + what;
  }
  void note_slot(uint64_t slot) {
    note("has a stamp that does not fit at byte " + std::to_string(offset_ + slot * sizeof(Record)));
  }

  bool read_written(uint64_t* written) {
    DirectoryEntry entry;
    if (!source_.read(entry_offset_, &entry, sizeof(entry))) {
      note("has no directory entry at byte " + std::to_string(entry_offset_));
      return false;
    }
    *written = std::min(entry.written, ~uint64_t{0} - 2);
    return true;
  }

  // Three readings, since a live writer may change a slot at any moment: stamps never come back, so a slot
  // that has the same stamp in the first and the third was whole in the second. Others get the stamp 0.
  bool read_slots(uint64_t count) {
    copies_.resize(count);
    std::vector<Record> first(std::min(count, kChunkRecords));
    std::vector<Record> third(first.size());
    for (uint64_t at = 0; at < count; at += kChunkRecords) {
      const uint64_t part = std::min(kChunkRecords, count - at);
      const uint64_t from = offset_ + at * sizeof(Record);
      const uint64_t bytes = part * sizeof(Record);
      if (!source_.read(from, first.data(), bytes) || !source_.read(from, &copies_[at], bytes) ||
          !source_.read(from, third.data(), bytes)) {
        note("cannot be read at byte " + std::to_string(from));
        return false;
      }
      for (uint64_t i = 0; i < part; ++i) {
        if (first[i].stamp != third[i].stamp || copies_[at + i].stamp != first[i].stamp)
          copies_[at + i].stamp = 0;
      }
    }
    return true;
  }

  bool untouched(uint64_t slot) const {
    static constexpr unsigned char kZeros[sizeof(Record)] = {};
    return slot >= before_ && std::memcmp(&copies_[slot], kZeros, sizeof(Record)) == 0;
  }

  // The stamp that `slot` has when `before_` records were written and none is being written; 0: none yet.
  uint64_t expected(uint64_t slot) const {
    if (slot >= before_) return 0;
    return before_ - (before_ - 1 - slot) % slots_;
  }

  // A ring that nobody writes: every slot has the one stamp that its place demands, but for the slot in which
  // the writer was when it died.
  void collect_still() {
    const uint64_t next = before_ % slots_;
    for (uint64_t slot = 0; slot < copies_.size(); ++slot) {
      const uint64_t stamp = copies_[slot].stamp;
      if (untouched(slot)) continue;
      if (stamp != 0 && (stamp == expected(slot) || (slot == next && stamp == before_ + 1))) {
        out_.records.push_back(copies_[slot]);
        continue;
      }
      ++out_.torn;
      if (slot != next || stamp != 0) note_slot(slot);
    }
    sort_records();
  }

  // A ring that was written while it was read: the newest records without a gap.
  void collect_moving() {
    const uint64_t oldest = before_ > slots_ ? before_ - slots_ : 0;
    for (uint64_t slot = 0; slot < copies_.size(); ++slot) {
      const uint64_t stamp = copies_[slot].stamp;
      if (stamp == 0) continue;
      if (stamp > oldest && stamp <= after_ + 1 && (stamp - 1) % slots_ == slot) {
        out_.records.push_back(copies_[slot]);
      } else {
        ++out_.torn;
        note_slot(slot);
      }
    }
    sort_records();
    auto first = out_.records.end();
    while (first != out_.records.begin() &&
           (first == out_.records.end() || std::prev(first)->stamp + 1 == first->stamp)) {
      --first;
    }
    out_.records.erase(out_.records.begin(), first);
  }

  void sort_records() {
    std::sort(out_.records.begin(), out_.records.end(),
              [](const Record& a, const Record& b) { return a.stamp < b.stamp; });
  }

  const ByteSource& source_;
  const uint32_t ring_;
  const uint64_t offset_;
  const uint64_t entry_offset_;
  const uint64_t slots_;
  uint64_t before_ = 0;
  uint64_t after_ = 0;
  std::vector<Record> copies_;
  RingContents out_;
};

}  // namespace

RingContents read_ring(const ByteSource& source, const Shape& shape, uint32_t ring) {
  return RingReader(source, shape, ring).run();
}

}  // namespace spillway::trace
