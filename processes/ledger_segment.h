// The ledger's segment of shared memory: its layout, how it is opened or made, and how a member gets a slot.
//
// Thread-safety: every word that several processes see is atomic, and each is written by one of them; nobody
// waits for a lock. Errors: `open_segment` says why there is none; what other processes wrote is never
// trusted. Units: bytes.
#pragma once
#include <atomic>
#include <boost/interprocess/mapped_region.hpp>
#include <memory>
#include <string>
#include <string_view>

#include "base/process_identity.h"
#include "processes/ledger.h"

namespace spillway::ledger {

inline constexpr uint64_t kMagic = 0x53504c6564676572;  // "SPLedger"
inline constexpr uint32_t kLayout = 7;
inline constexpr size_t kSlots = 64;
inline constexpr size_t kEntryWords = sizeof(LedgerEntry) / sizeof(uint64_t);
static_assert(sizeof(LedgerEntry) % sizeof(uint64_t) == 0);

// A process in one word: what another reads is never half of it. Process ids have at most 22 bits.
inline constexpr unsigned kIdBits = 22;
inline uint64_t packed(const ProcessIdentity& process) {
  return process.start << kIdBits | process.id;
}
inline ProcessIdentity unpacked(uint64_t owner) {
  return {owner & ((uint64_t{1} << kIdBits) - 1), owner >> kIdBits};
}
inline bool lives(uint64_t owner) {
  return owner != 0 && is_alive(unpacked(owner));
}

struct Answer {
  std::atomic<uint64_t> number, given_bytes;
};

// What the owner shows of itself. `version` is odd while it is written, and stays so if the writer is killed
// then; `writer` is the owner that wrote it.
struct Shown {
  std::atomic<uint64_t> version, writer;
  std::atomic<uint64_t> words[kEntryWords];
};

struct Slot {
  std::atomic<uint64_t> owner;  // packed; 0: free
  // The owner's need: `number` is 0 while the rest is written.
  std::atomic<uint64_t> number, bytes;
  std::atomic<uint64_t> device[2];
  std::atomic<uint32_t> answers;  // grows with each answer to the owner; waited on
  Answer answered[kSlots];        // the owner's, to each slot
  Shown shown;
};

struct Segment {
  std::atomic<uint64_t> magic;  // written last by who makes it
  uint32_t layout, bytes;
  std::atomic<uint64_t> last_number;
  std::atomic<uint32_t> asked;  // grows with each need; waited on
  Slot slots[kSlots];
};
static_assert(std::atomic<uint64_t>::is_always_lock_free && std::atomic<uint32_t>::is_always_lock_free);

inline DeviceUuid device_of(const Slot& slot) {
  const uint64_t words[2] = {slot.device[0].load(), slot.device[1].load()};
  DeviceUuid device;
  static_assert(sizeof device == sizeof words);
  __builtin_memcpy(device.data(), words, sizeof words);
  return device;
}

using Region = std::unique_ptr<boost::interprocess::mapped_region>;
inline Segment& segment_in(const Region& region) {
  return *static_cast<Segment*>(region->get_address());
}

// Whether a ledger's name is that of a file, and no name of shared memory.
inline bool is_path(std::string_view name) {
  return name.starts_with('/');
}
// Whether the open file is this user's, and nobody else's.
bool is_this_users(int descriptor, std::string* why_not);
// The segment of that name, made where there is none and made anew where it is no ledger of this layout; or
// that of a file, as it is. Null: `why_not`.
Region open_segment(const std::string& name, std::string* why_not);
// A slot for this process, cleared of what an earlier owner left: the one that the program had which this
// process has replaced by exec, where there is one. kSlots: all are taken by the living.
size_t claim_slot(Segment& segment);
void give_up_slot(Segment& segment, size_t slot);

}  // namespace spillway::ledger
