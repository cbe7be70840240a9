// What is charged against one card: the pages that programs make, and under labels the modelled bytes of what
// real libraries and the driver take for themselves.
//
// Thread-safety: none of its own; used under the simulator's lock. Ownership: values. Errors: `false` when
// the card has no room; the refusal is counted. Units: bytes.
#pragma once
#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <utility>

namespace spillway::simulator {

class SharedMachine;

// Who asked for pages: PyTorch's caching allocator, its own or Spillway's, or anybody else.
enum class Taker { kAllocator, kOther };

class Account {
 public:
  struct Part {
    uint64_t bytes = 0;
    uint64_t at_peak_bytes = 0;  // when the card's charge was at its peak
  };
  struct Refusal {
    uint64_t asked_bytes = 0, free_bytes = 0;
    std::string label;  // "": pages
  };

  // Called before a request for `bytes` that may be refused: what may go can make room.
  void set_evict(std::function<void(uint64_t bytes)> evict) { evict_ = std::move(evict); }
  void set_capacity(uint64_t bytes) { capacity_bytes_ = bytes; }
  // From now on the card's room is that of all processes of a machine, in which the card has number `card`.
  void share(SharedMachine* machine, int card) {
    machine_ = machine;
    card_ = card;
  }
  bool take_pages(uint64_t bytes, Taker taker);
  void give_pages(uint64_t bytes, Taker taker);
  // Pages that stay charged change hands, as between an allocation and the pool that it came from.
  void hand_over(uint64_t bytes, Taker from, Taker to);
  // Counts a request for pages that was refused before it came to `take_pages`.
  void refuse_pages(uint64_t bytes) { refuse(bytes, ""); }

  bool charge(std::string_view label, uint64_t bytes);
  // Takes back bytes of a label; false when it holds fewer, and nothing changes.
  bool discharge(std::string_view label, uint64_t bytes);

  uint64_t capacity_bytes() const { return capacity_bytes_; }
  uint64_t charged_bytes() const { return pages_bytes_ + modelled_bytes_; }
  uint64_t pages_bytes() const { return pages_bytes_; }
  uint64_t modelled_bytes() const { return modelled_bytes_; }
  // Of other processes of the machine; those that have died count until `free_bytes_now` or a refusal.
  uint64_t others_bytes() const;
  // 0 when the capacity was lowered below what is charged.
  uint64_t free_bytes() const;
  uint64_t free_bytes_now();  // what dead processes held is free
  // The most that all processes of the machine had charged; this process's own peak if it shares none.
  uint64_t machine_peak_bytes() const;
  uint64_t peak_bytes() const { return peak_bytes_; }
  const std::map<std::string, Part, std::less<>>& parts() const { return parts_; }
  uint64_t refused_requests() const { return refused_requests_; }
  const Refusal& first_refusal() const { return first_refusal_; }
  // Of the refused requests those for modelled parts; the others asked for pages.
  const std::map<std::string, uint64_t, std::less<>>& refused_parts() const { return refused_parts_; }
  // Forgets the peak and the refusals; what is charged stays.
  void reset();

  // Of the peak, what PyTorch's allocator had.
  uint64_t allocator_at_peak_bytes() const { return allocator_at_peak_bytes_; }
  // The most that all but PyTorch's allocator had at once.
  uint64_t outside_peak_bytes() const { return outside_peak_bytes_; }

 private:
  void evict(uint64_t bytes) {
    if (evict_ && bytes > free_bytes()) evict_(bytes);
  }
  void refuse(uint64_t bytes, std::string_view label);
  bool has_room(uint64_t bytes);
  void note_change();
  void note_peak();

  uint64_t capacity_bytes_ = 0, pages_bytes_ = 0, modelled_bytes_ = 0, peak_bytes_ = 0;
  uint64_t allocator_bytes_ = 0, allocator_at_peak_bytes_ = 0, outside_peak_bytes_ = 0;
  std::map<std::string, Part, std::less<>> parts_;
  uint64_t refused_requests_ = 0;
  Refusal first_refusal_;
  std::map<std::string, uint64_t, std::less<>> refused_parts_;
  std::function<void(uint64_t bytes)> evict_;
  SharedMachine* machine_ = nullptr;
  int card_ = 0;
};

}  // namespace spillway::simulator
