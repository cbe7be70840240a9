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
#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "trace/layout.h"
#include "trace/record.h"

namespace spillway::trace {

struct Options {
  uint32_t rings = 32;                   // threads that can write at the same time
  uint32_t records_per_ring = 1u << 15;  // a power of two; the newest are kept
  uint32_t side_table_bytes = 1u << 22;  // stacks are most of it
};

class File;
class SideTable;

class Trace {
 public:
  // Creates `path` (its folder must exist), allocates its whole space and maps it. Null and `error` on
  // failure.
  static std::unique_ptr<Trace> open(const std::string& path, const Options& options, std::string* error);
  // What keeps `open` from making `path`, or "". It is looked at, and nothing is made.
  static std::string obstacle(const std::string& path);
  ~Trace();
  Trace(const Trace&) = delete;
  Trace& operator=(const Trace&) = delete;

  // Stores the record under a stamp of its own. `record.order` is the caller's.
  void write(const Record& record) noexcept;
  // An index for `Record::detail`, the same for the same text; 0 when the side table is full.
  uint64_t intern(std::string_view text) noexcept;
  void set(std::string_view key, std::string_view value) noexcept;  // a setting, for the report
  uint64_t dropped() const noexcept;
  // In a forked child that has written nothing yet this opens the child's file. "": that cannot be opened.
  const std::string& path() noexcept;

 private:
  // Lives on a page that the kernel wipes in a forked child. There the id is 0, which no thread's cache
  // matches, and the lock is open, even if a thread of the parent's held it at the fork.
  struct Guard;
  class GuardLock;

  Trace(std::shared_ptr<File> file, Guard* guard);
  static Guard* map_guard(std::string* error);
  void write_slowly(const Record& record) noexcept;
  bool enter_process() noexcept;
  void open_for_child() noexcept;
  void abandon_side_table() noexcept;

  Guard* const guard_;
  const std::string root_path_;
  const Shape shape_;
  std::shared_ptr<File> file_;
  std::unique_ptr<SideTable> side_;
  std::atomic<uint64_t> lost_{0};  // records that a child dropped for want of a file
};

}  // namespace spillway::trace
