// How an entry that a member shows is read while its owner may be writing it: by a version that is odd
// meanwhile. The segment is a file to who is no member, and memory to who is one.
//
// Thread-safety: any thread. Errors: false; what another process wrote is not trusted.
#pragma once
#include <chrono>
#include <cstddef>
#include <cstring>
#include <thread>

#include "processes/ledger_segment.h"

namespace spillway::ledger {

// The mapped segment as a source: each word is an acquire, and the writer's each a release.
class Mapped {
 public:
  explicit Mapped(const Segment& segment) : segment_(segment) {}
  bool read(size_t offset, void* to, size_t bytes) const {
    for (size_t at = 0; at + sizeof(uint64_t) <= bytes; at += sizeof(uint64_t)) {
      const uint64_t word = word_at(offset + at);
      std::memcpy(static_cast<char*>(to) + at, &word, sizeof word);
    }
    return true;
  }
  uint64_t word_at(size_t offset) const {
    const auto* bytes = reinterpret_cast<const char*>(&segment_);
    return reinterpret_cast<const std::atomic<uint64_t>*>(bytes + offset)->load(std::memory_order_acquire);
  }

 private:
  const Segment& segment_;
};

inline size_t offset_of(size_t slot) {
  return offsetof(Segment, slots) + slot * sizeof(Slot);
}

template <size_t size>
void end_text(char (&text)[size]) {
  text[size - 1] = '\0';
}

inline void tame(LedgerEntry& entry) {
  end_text(entry.program);
  end_text(entry.host);
  end_text(entry.container);
  end_text(entry.phase);
  end_text(entry.mode);
  end_text(entry.incident.tried);
  for (LedgerStrategy& strategy : entry.strategies) end_text(strategy.name);
  for (LedgerDevice& device : entry.devices) end_text(device.name);
  if (entry.device_count > LedgerEntry::kMostDevices) entry.device_count = LedgerEntry::kMostDevices;
}

// An entry that is being written is looked at again, in two milliseconds at most: on a busy machine its
// writer may have lost its processor in the middle. False: still, or there is none of `owner`.
template <typename Source>
bool read_shown(const Source& source, size_t slot, uint64_t owner, LedgerEntry* entry) {
  constexpr int kLooksAtOnce = 8, kLooks = 28;
  constexpr auto kBetweenLooks = std::chrono::microseconds(100);
  const size_t shown = offset_of(slot) + offsetof(Slot, shown);
  for (int look = 0; look < kLooks; ++look) {
    if (look >= kLooksAtOnce) std::this_thread::sleep_for(kBetweenLooks);
    const uint64_t version = source.word_at(shown + offsetof(Shown, version));
    const uint64_t writer = source.word_at(shown + offsetof(Shown, writer));
    if (version == 0 || writer != owner) return false;
    if (version % 2 != 0 || !source.read(shown + offsetof(Shown, words), entry, sizeof *entry)) continue;
    if (source.word_at(shown + offsetof(Shown, version)) != version) continue;
    tame(*entry);
    return true;
  }
  return false;
}

}  // namespace spillway::ledger
