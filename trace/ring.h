// One thread's ring in the mapped file: storing a record is a handful of plain stores.
//
// Thread-safety: one writer at a time (the owner that DirectoryEntry names); readers are other processes, or
// `read`. The slot's stamp is cleared before the record is stored and set after it, so that whatever instant
// the writer dies at, the slot holds a whole record or none.
#pragma once
#include <atomic>
#include <cstdint>
#include <cstring>

#include "trace/layout.h"

namespace spillway::trace {

struct Ring {
  DirectoryEntry* entry = nullptr;
  Record* records = nullptr;
  uint64_t mask = 0;

  void push(const Record& record) const noexcept {
    std::atomic_ref<uint64_t> written(entry->written);
    const uint64_t number = written.load(std::memory_order_relaxed);
    auto* slot = reinterpret_cast<uint64_t*>(&records[number & mask]);
    const auto* from = reinterpret_cast<const uint64_t*>(&record);
    std::atomic_ref<uint64_t> stamp(slot[0]);
    stamp.store(0, std::memory_order_relaxed);
    order_stores();
    // Word by word: the caller has just stored 8-byte fields, and wider loads would wait for them.
    for (int word = 1; word < 8; ++word) {
      std::atomic_ref<uint64_t>(slot[word]).store(from[word], std::memory_order_relaxed);
    }
    stamp.store(number + 1, std::memory_order_release);
    written.store(number + 1, std::memory_order_release);
  }

 private:
  static void order_stores() noexcept {
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wtsan"  // TSan models no fences; it also sees no reader of the mapped file
    std::atomic_thread_fence(std::memory_order_release);
#pragma GCC diagnostic pop
  }
};

}  // namespace spillway::trace
