// The records of a trace: up to 2^24 of 64 bytes, so they are never held twice, and whoever has read a part
// of them can give its memory back to the system while the rest is still needed.
//
// Thread-safety: as a std::vector's. Ownership: move-only. Errors: std::bad_alloc.
#pragma once
#include <sys/mman.h>

#include <cstddef>
#include <iterator>
#include <memory>
#include <new>
#include <type_traits>
#include <vector>

#include "trace/record.h"

namespace spillway::trace {

class RecordList {
 public:
  template <bool kIsConst>
  class Iterator;
  using iterator = Iterator<false>;
  using const_iterator = Iterator<true>;

  RecordList() = default;
  RecordList(RecordList&& other) noexcept { *this = std::move(other); }
  RecordList& operator=(RecordList&& other) noexcept {
    chunks_ = std::move(other.chunks_);
    size_ = other.size_;
    other.clear();
    return *this;
  }
  ~RecordList() = default;

  size_t size() const { return size_; }
  bool empty() const { return size_ == 0; }
  Record& operator[](size_t i) { return chunks_[i / kChunkRecords][i % kChunkRecords]; }
  const Record& operator[](size_t i) const { return chunks_[i / kChunkRecords][i % kChunkRecords]; }
  Record& front() { return (*this)[0]; }
  const Record& front() const { return (*this)[0]; }
  Record& back() { return (*this)[size_ - 1]; }
  const Record& back() const { return (*this)[size_ - 1]; }
  inline iterator begin();
  inline iterator end();
  inline const_iterator begin() const;
  inline const_iterator end() const;

  void push_back(const Record& record) {
    if (size_ == chunks_.size() * kChunkRecords) chunks_.push_back(new_chunk());
    (*this)[size_++] = record;
  }
  // REQUIRES: size <= size().
  void shorten(size_t size) {
    size_ = size;
    chunks_.resize((size + kChunkRecords - 1) / kChunkRecords);
  }
  void clear() { shorten(0); }
  // The memory of the records before `i`, as far as it can go by itself. None of them may be read again, and
  // the list may only be cleared, moved, or given away further.
  void give_back_before(size_t i) {
    for (size_t chunk = i / kChunkRecords; chunk > 0 && chunks_[chunk - 1] != nullptr; --chunk)
      chunks_[chunk - 1].reset();
  }

 private:
  static constexpr size_t kChunkRecords = 1 << 14;  // a MiB

  // Mapped, not from the heap, which keeps for itself what is freed between what is not.
  struct Unmap {
    void operator()(Record* records) const { ::munmap(records, kChunkRecords * sizeof(Record)); }
  };
  using Chunk = std::unique_ptr<Record[], Unmap>;
  static Chunk new_chunk() {
    void* place = ::mmap(nullptr, kChunkRecords * sizeof(Record), PROT_READ | PROT_WRITE,
                         MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (place == MAP_FAILED) throw std::bad_alloc();
    return Chunk(static_cast<Record*>(place));
  }

  std::vector<Chunk> chunks_;
  size_t size_ = 0;
};

template <bool kIsConst>
class RecordList::Iterator {
 public:
  using List = std::conditional_t<kIsConst, const RecordList, RecordList>;
  using iterator_category = std::random_access_iterator_tag;
  using value_type = Record;
  using difference_type = std::ptrdiff_t;
  using reference = std::conditional_t<kIsConst, const Record&, Record&>;
  using pointer = std::remove_reference_t<reference>*;

  Iterator() = default;
  Iterator(List* list, size_t at) : list_(list), at_(static_cast<difference_type>(at)) {}

  reference operator*() const { return (*list_)[static_cast<size_t>(at_)]; }
  pointer operator->() const { return &**this; }
  reference operator[](difference_type by) const { return *(*this + by); }
  Iterator& operator++() { return *this += 1; }
  Iterator& operator--() { return *this -= 1; }
  Iterator operator++(int) {
    const Iterator before = *this;
    ++*this;
    return before;
  }
  Iterator operator--(int) {
    const Iterator before = *this;
    --*this;
    return before;
  }
  Iterator& operator+=(difference_type by) {
    at_ += by;
    return *this;
  }
  Iterator& operator-=(difference_type by) { return *this += -by; }
  friend Iterator operator+(Iterator it, difference_type by) { return it += by; }
  friend Iterator operator+(difference_type by, Iterator it) { return it += by; }
  friend Iterator operator-(Iterator it, difference_type by) { return it -= by; }
  friend difference_type operator-(const Iterator& a, const Iterator& b) { return a.at_ - b.at_; }
  friend bool operator==(const Iterator& a, const Iterator& b) { return a.at_ == b.at_; }
  friend auto operator<=>(const Iterator& a, const Iterator& b) { return a.at_ <=> b.at_; }

 private:
  List* list_ = nullptr;
  difference_type at_ = 0;
};

inline RecordList::iterator RecordList::begin() {
  return {this, 0};
}
inline RecordList::iterator RecordList::end() {
  return {this, size_};
}
inline RecordList::const_iterator RecordList::begin() const {
  return {this, 0};
}
inline RecordList::const_iterator RecordList::end() const {
  return {this, size_};
}

}  // namespace spillway::trace
