// Writing a trace: `Trace::open` once, `trace.write(record)` from any thread.
//
// Thread-safety: every member may be called from any thread, but not from a signal handler. A thread writes
// what is frequent (Kind) to a ring of its own, without a lock, a system call or an allocation after its
// first record; what is rare takes a short lock. Ownership: the Trace owns the mapping; the file stays.
// It is marked closed when the Trace is destroyed or the process exits in order. Fork:
// a child never writes its parent's file; its first record opens a file of its own (the path with its pid
// appended). Errors: `open` says what failed; after that nothing fails: when every ring is taken, records are
// dropped and counted.
#pragma once
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "trace/record.h"

namespace spillway::trace {

struct Options {
  uint32_t rings = 32;                   // threads that can write at the same time
  uint32_t records_per_ring = 1u << 15;  // a power of two; the newest are kept
  uint32_t side_table_bytes = 1u << 22;  // stacks are most of it
};

class Trace {
 public:
  // Creates `path` (its folder must exist), allocates its whole space and maps it. Null and `error` on
  // failure.
  static std::unique_ptr<Trace> open(const std::string& path, const Options& options, std::string* error);
  virtual ~Trace() = default;

  // Stores the record under a stamp of its own. `record.order` is the caller's.
  virtual void write(const Record& record) noexcept = 0;
  // An index for `Record::detail`, the same for the same text; 0 when the side table is full.
  virtual uint64_t intern(std::string_view text) noexcept = 0;
  virtual void set(std::string_view key, std::string_view value) noexcept = 0;  // a setting, for the report
  virtual uint64_t dropped() const noexcept = 0;
  virtual const std::string& path() const noexcept = 0;
};

}  // namespace spillway::trace
