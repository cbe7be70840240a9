#include "trace/ring_reader.h"

#include <algorithm>
#include <cstring>

namespace spillway::trace {
namespace {

constexpr uint64_t kChunkRecords = 1024;

class RingReader {
 public:
  RingReader(const ByteSource& source, const Shape& shape, uint32_t ring, RecordList* out)
      : source_(source),
        records_(*out),
        begin_(out->size()),
        ring_(ring),
        offset_(shape.ring_offset(ring)),
        entry_offset_(shape.directory_offset() + ring * sizeof(DirectoryEntry)),
        slots_(shape.records_per_ring) {}

  RingState run() {
    if (!read_written(&before_)) return state_;
    const uint64_t wanted = std::min(before_ + 1, slots_);  // and the one being written
    const uint64_t room = source_.size() > offset_ ? (source_.size() - offset_) / sizeof(Record) : 0;
    if (room < wanted) note("is cut short at byte " + std::to_string(source_.size()));
    if (!read_slots(std::min(wanted, room)) || !read_written(&after_)) {
      records_.shorten(begin_);
      return state_;
    }
    if (before_ == after_) {
      collect_still();
    } else {
      collect_moving();
    }
    if (records_.size() > begin_) state_.overwritten = records_[begin_].stamp - 1;
    return state_;
  }

 private:
  void note(const std::string& what) {
    if (state_.damage.empty()) state_.damage = "ring " + std::to_string(ring_) + " " + what;
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
    std::vector<Record> first(std::min(count, kChunkRecords));
    std::vector<Record> second(first.size()), third(first.size());
    for (uint64_t at = 0; at < count; at += kChunkRecords) {
      const uint64_t part = std::min(kChunkRecords, count - at);
      const uint64_t from = offset_ + at * sizeof(Record);
      const uint64_t bytes = part * sizeof(Record);
      if (!source_.read(from, first.data(), bytes) || !source_.read(from, second.data(), bytes) ||
          !source_.read(from, third.data(), bytes)) {
        note("cannot be read at byte " + std::to_string(from));
        return false;
      }
      for (uint64_t i = 0; i < part; ++i) {
        if (first[i].stamp != third[i].stamp || second[i].stamp != first[i].stamp) second[i].stamp = 0;
        records_.push_back(second[i]);
      }
    }
    return true;
  }

  uint64_t slots_read() const { return records_.size() - begin_; }
  const Record& at(uint64_t slot) const { return records_[begin_ + slot]; }

  bool untouched(uint64_t slot) const {
    static constexpr unsigned char kZeros[sizeof(Record)] = {};
    return slot >= before_ && std::memcmp(&at(slot), kZeros, sizeof(Record)) == 0;
  }

  // The stamp that `slot` has when `before_` records were written and none is being written; 0: none yet.
  uint64_t expected(uint64_t slot) const {
    if (slot >= before_) return 0;
    return before_ - (before_ - 1 - slot) % slots_;
  }

  // A ring that nobody writes: every slot has the one stamp that its place demands, but for the slot in which
  // the writer was when it died.
  void collect_still() {
    const uint64_t next = before_ % slots_, count = slots_read();
    size_t kept = begin_;
    for (uint64_t slot = 0; slot < count; ++slot) {
      const uint64_t stamp = at(slot).stamp;
      if (untouched(slot)) continue;
      if (stamp != 0 && (stamp == expected(slot) || (slot == next && stamp == before_ + 1))) {
        records_[kept++] = at(slot);
        continue;
      }
      ++state_.torn;
      if (slot != next || stamp != 0) note_slot(slot);
    }
    records_.shorten(kept);
    sort_records();
  }

  // A ring that was written while it was read: the newest records without a gap.
  void collect_moving() {
    const uint64_t oldest = before_ > slots_ ? before_ - slots_ : 0;
    const uint64_t count = slots_read();
    size_t kept = begin_;
    for (uint64_t slot = 0; slot < count; ++slot) {
      const uint64_t stamp = at(slot).stamp;
      if (stamp == 0) continue;
      if (stamp > oldest && stamp <= after_ + 1 && (stamp - 1) % slots_ == slot) {
        records_[kept++] = at(slot);
      } else {
        ++state_.torn;
        note_slot(slot);
      }
    }
    records_.shorten(kept);
    sort_records();
    auto first = records_.end();
    while (first != begin() && (first == records_.end() || std::prev(first)->stamp + 1 == first->stamp))
      --first;
    std::move(first, records_.end(), begin());
    records_.shorten(records_.size() - static_cast<size_t>(first - begin()));
  }

  RecordList::iterator begin() { return records_.begin() + static_cast<ptrdiff_t>(begin_); }

  // By slot they are in order already, but for where the newest comes before the oldest.
  void sort_records() {
    std::rotate(begin(), std::ranges::min_element(begin(), records_.end(), {}, &Record::stamp),
                records_.end());
    if (!std::ranges::is_sorted(begin(), records_.end(), {}, &Record::stamp))
      std::ranges::sort(begin(), records_.end(), {}, &Record::stamp);
  }

  const ByteSource& source_;
  RecordList& records_;
  const size_t begin_;  // of this ring's records
  const uint32_t ring_;
  const uint64_t offset_;
  const uint64_t entry_offset_;
  const uint64_t slots_;
  uint64_t before_ = 0;
  uint64_t after_ = 0;
  RingState state_;
};

}  // namespace

RingState read_ring(const ByteSource& source, const Shape& shape, uint32_t ring, RecordList* out) {
  return RingReader(source, shape, ring, out).run();
}

}  // namespace spillway::trace
