// The file through which the ranks of one communicator meet: every process maps it, and one after the other
// writes what it calls. It is unlinked as soon as all ranks have it open, so nothing stays behind however
// they end; behind the shared structures each rank has a part for the bytes that it sends.
//
// Thread-safety: the atomics are for all ranks; everything else in a rank's part is written by that rank
// before it moves the counter that shows it. Ranks in one process share the mapping. Ownership: the mapping
// lives as long as the object. Errors: words in `why`. Units: bytes.
#pragma once
#include <atomic>
#include <cstdint>
#include <memory>
#include <string>

#include "base/process_identity.h"
#include "simulator/libraries/nccl/api/call.h"

namespace spillway::nccl {

constexpr int kMostRanks = 128;
// How many calls a rank may be ahead of the slowest, as a GPU's launch queue ends somewhere.
constexpr uint64_t kCallsKept = 1024, kPairCallsKept = 256, kSplitsKept = 64;
// Of address space in the file, for the bytes that a rank has sent and others have not read.
constexpr uint64_t kPayloadBytes = uint64_t{64} << 30;

// A call as the other ranks see it.
struct Record {
  Signature signature;
  double scalar = 1;
  uint64_t payload = 0;  // where its bytes are in the rank's part
  uint32_t told = 0;     // whether they are there
};

struct SplitRecord {
  int32_t color = 0, key = 0;
};

// A process in one word, so that nobody sees half of one. Linux's process ids have 22 bits.
class SharedProcess {
 public:
  // False: another one was first.
  bool claim(const ProcessIdentity& process) {
    uint64_t nobody = 0;
    return word_.compare_exchange_strong(nobody, process.start << kIdBits | process.id);
  }
  bool claimed() const { return word_.load() != 0; }
  ProcessIdentity load() const {
    const uint64_t word = word_.load();
    return {word & ((uint64_t{1} << kIdBits) - 1), word >> kIdBits};
  }

 private:
  static constexpr int kIdBits = 22;
  std::atomic<uint64_t> word_;
};

enum class Presence : uint32_t { kAbsent, kThere, kLeft };

struct RankPart {
  std::atomic<Presence> presence;
  int32_t device;
  SharedProcess process;                      // claimed before it is there
  char card[128];                             // which physical card, over all processes
  std::atomic<uint64_t> submitted, consumed;  // collectives
  std::atomic<uint64_t> splits, splits_read;
  SplitRecord split[kSplitsKept];
  Record calls[kCallsKept];
};

// From one rank to another.
struct PairPart {
  std::atomic<uint64_t> sent, send_checked;  // by the sender
  std::atomic<uint64_t> posted, received;    // by the receiver
  Record sends[kPairCallsKept], receives[kPairCallsKept];
};

struct FileHeader {
  char magic[8];
  int32_t ranks;
  int32_t computes;
  ProcessIdentity creator;
  std::atomic<uint32_t> changes, waiters;  // changes: whatever somebody may wait for
  std::atomic<int32_t> joined;
};

// Where ranks look for each other.
struct Place {
  std::string folder, name;
};

class SharedFile {
 public:
  // The file at `place`, made if nobody has. Null: `why`.
  static std::shared_ptr<SharedFile> open(const Place& place, int ranks, bool computes, std::string* why);
  ~SharedFile();
  SharedFile(const SharedFile&) = delete;
  SharedFile& operator=(const SharedFile&) = delete;

  FileHeader& header() const { return *static_cast<FileHeader*>(memory_); }
  RankPart& rank(int number) const;
  PairPart& pair(int from, int to) const;
  const Place& place() const { return place_; }
  void unlink() const;

  // The bytes of a rank. False: `why`.
  bool write(int rank, uint64_t offset, const void* bytes, uint64_t size, std::string* why) const;
  bool read(int rank, uint64_t offset, void* bytes, uint64_t size, std::string* why) const;
  void forget(int rank, uint64_t offset, uint64_t size) const;

  // Wakes who waits. `wait` returns when `changes()` is no longer `seen`, or after a while.
  void changed() const;
  uint32_t changes() const { return header().changes.load(); }
  void wait(uint32_t seen, int64_t ms) const;

 private:
  SharedFile(Place place, int descriptor, void* memory, uint64_t mapped_bytes)
      : place_(std::move(place)), descriptor_(descriptor), memory_(memory), mapped_bytes_(mapped_bytes) {}
  static std::shared_ptr<SharedFile> map(const Place& place, int descriptor, int ranks, std::string* why);

  Place place_;
  int descriptor_;
  void* memory_;
  uint64_t mapped_bytes_;
};

// The folder of this user in which files are made; made if it is not there. "": `why`. A rank that takes part
// must use the one of whoever made the unique id.
std::string own_folder(bool computes, std::string* why);
// Removes files whose processes are all gone.
void sweep(const std::string& folder);

}  // namespace spillway::nccl
