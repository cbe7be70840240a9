// A file of pages of 2 MiB, for memory that lies on a disk: without a name, so that nothing of it is left
// when the process ends, however it does; each page with a checksum.
//
// Thread-safety: any thread; `write` and `read` of one page by one at a time. Ownership: of the file. Errors:
// an errno value, 0 for none; `EBADMSG` where a page's bytes are not those that were written, `ENODATA` where
// the file ends before it. What could not be read can be tried again. Units: bytes.
#pragma once
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <queue>
#include <string>
#include <vector>

#include "base/backoff.h"
#include "base/mutex.h"

namespace spillway {

class PageFile {
 public:
  static constexpr uint64_t kPageBytes = 2 << 20;
  // Of memory that is written from and read to.
  static constexpr size_t kAlignment = 4096;
  // A page's place in the file, and what it holds.
  struct Stored {
    uint64_t place = 0;
    uint32_t checksum = 0;
  };

  // In `folder`, of at most `most_bytes`. Null: `why_not`. `now`: by which a disk that refused is tried
  // again.
  static std::unique_ptr<PageFile> open(const std::string& folder, uint64_t most_bytes, std::string* why_not,
                                        Backoff::Now now = &std::chrono::steady_clock::now);
  ~PageFile();
  PageFile(const PageFile&) = delete;
  PageFile& operator=(const PageFile&) = delete;

  // What can still be written; for a while after the disk has refused no more than it took.
  uint64_t free_bytes();
  // A place for a page, the first that is free; none is left: nothing.
  std::optional<uint64_t> take();
  void give(uint64_t place);
  // kPageBytes at an aligned address. `write` to a place that was taken fills in the checksum.
  int write(const std::byte* from, Stored* page);
  int read(const Stored& page, std::byte* to);
  // After a group of writes: 0 says that the file has them all.
  int finish();
  // Of the last of these two.
  int last_error() const { return last_error_.load(); }

 private:
  PageFile(int descriptor, uint64_t most_pages, Backoff::Now now)
      : descriptor_(descriptor), now_(now), most_(most_pages) {}
  void note_write(uint64_t place, int error);
  uint64_t most_now() const SPILLWAY_REQUIRES(mutex_);
  int write_all(const std::byte* from, uint64_t offset);
  int read_all(std::byte* to, uint64_t offset);
  bool leave_direct(int error, bool was_direct);

  const int descriptor_;
  const Backoff::Now now_;
  Backoff backoff_;
  std::atomic<int> last_error_{0};
  std::atomic<bool> direct_{true};  // around the kernel's cache; leaves it under the mutex
  const uint64_t most_;             // pages
  Mutex<LockOrder::kPageFile> mutex_;
  uint64_t end_ SPILLWAY_GUARDED_BY(mutex_) = 0;
  uint64_t refused_at_ SPILLWAY_GUARDED_BY(mutex_) = UINT64_MAX;
  std::priority_queue<uint64_t, std::vector<uint64_t>, std::greater<>> free_ SPILLWAY_GUARDED_BY(mutex_);
};

// CRC-32C.
uint32_t checksum_of(const std::byte* bytes, size_t count);

}  // namespace spillway
