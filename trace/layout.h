// Where everything stands in a trace file: header | ring directory | side table | rings.
//
// Writer and reader compute every offset from three numbers of the header (`Shape`), so no offset is stored
// and none can lie. The rings come last: a file that is cut short keeps its names. Units: bytes.
#pragma once
#include <cstddef>
#include <cstdint>

#include "trace/record.h"

namespace spillway::trace {

inline constexpr uint64_t kPageBytes = 4096;
inline constexpr uint32_t kMaxRings = 4096;
inline constexpr uint32_t kRareRing = 0;      // holds the rare events of all threads
inline constexpr uint32_t kAllThreads = ~0u;  // its owner
inline constexpr uint64_t kMaxRecords = 1u
                                        << 24;  // of all rings: a header that lies cannot keep a reader busy
inline constexpr uint64_t kMaxSideBytes = 1u << 28;

// The start of the file. Everything before `check` is written once; the rest changes, so the check cannot
// cover it.
struct Header {
  uint64_t magic = 0;  // written last: a file that is not yet whole is no trace
  uint32_t version = 0;
  uint32_t header_bytes = 0;
  uint32_t rings = 0;
  uint32_t records_per_ring = 0;
  uint64_t side_bytes = 0;
  uint64_t process = 0;
  uint64_t started_ns = 0;
  uint64_t check = 0;
  uint64_t dropped = 0;
  uint64_t side_used = 0;
  uint64_t closed = 0;
};
static_assert(sizeof(Header) == 80);

// Who writes, in the header's page, where traces of older versions have zeros.
struct Writer {
  uint64_t machine = 0;        // since its start; 0: not known
  uint64_t id_space = 0;       // in which the process has its id
  uint64_t process_start = 0;  // clock ticks since the machine's
  uint64_t check = 0;
};
inline constexpr uint64_t kWriterOffset = 128;
static_assert(sizeof(Header) <= kWriterOffset && kWriterOffset + sizeof(Writer) <= kPageBytes);

// One per ring, on a cache line of its own: `written` changes with every record.
struct alignas(64) DirectoryEntry {
  uint64_t written = 0;  // records that the ring ever held; the next one's number
  uint32_t owner = 0;    // thread that writes it, 0: free
};
static_assert(sizeof(DirectoryEntry) == 64);

enum class SideType : uint32_t { kName = 1, kSetting = 2 };

struct SideEntry {
  uint32_t bytes = 0;  // of the text that follows, which is padded to 8
  uint32_t check = 0;  // over the other three fields and the text
  SideType type{};
  uint32_t number = 0;  // a name's index; the length of a setting's key, which its value follows
};
static_assert(sizeof(SideEntry) == 16);

struct Shape {
  uint32_t rings = 0;
  uint32_t records_per_ring = 0;
  uint64_t side_bytes = 0;

  static constexpr uint64_t to_pages(uint64_t bytes) {
    return (bytes + kPageBytes - 1) / kPageBytes * kPageBytes;
  }
  constexpr uint64_t directory_offset() const { return kPageBytes; }
  constexpr uint64_t side_offset() const {
    return directory_offset() + to_pages(uint64_t{rings} * sizeof(DirectoryEntry));
  }
  constexpr uint64_t ring_bytes() const { return uint64_t{records_per_ring} * sizeof(Record); }
  constexpr uint64_t ring_offset(uint32_t ring) const {
    return side_offset() + to_pages(side_bytes) + ring * ring_bytes();
  }
  constexpr uint64_t file_bytes() const { return ring_offset(rings); }
  constexpr bool valid() const {
    return rings >= 1 && rings <= kMaxRings && records_per_ring >= 2 &&
           (records_per_ring & (records_per_ring - 1)) == 0 &&
           uint64_t{rings} * records_per_ring <= kMaxRecords && side_bytes >= kPageBytes &&
           side_bytes <= kMaxSideBytes;
  }
};

// FNV-1a: guards against damage, not against intent.
class Check {
 public:
  void add(const void* data, size_t bytes) {
    const auto* at = static_cast<const unsigned char*>(data);
    for (size_t i = 0; i < bytes; ++i) hash_ = (hash_ ^ at[i]) * 0x100000001b3ull;
  }
  uint64_t value() const { return hash_; }

 private:
  uint64_t hash_ = 0xcbf29ce484222325ull;
};

inline uint64_t header_check(const Header& header) {
  Check check;
  check.add(&header, offsetof(Header, check));
  return check.value();
}

}  // namespace spillway::trace
