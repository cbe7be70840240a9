#include "trace/writer.h"

#include <sched.h>
#include <sys/mman.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <new>
#include <system_error>
#include <vector>

#include "trace/file.h"
#include "trace/side_table.h"

namespace spillway::trace {
namespace {

constexpr uint64_t kNoFile = ~uint64_t{0};

// The file that the thread wrote to last, and its ring there. Two words of static TLS: this code is in a
// library that is loaded late, where any other model costs a call for each record.
struct Cached {
  uint64_t id = kNoFile;
  Ring* ring = nullptr;
};
constinit thread_local Cached cached __attribute__((tls_model("initial-exec")));
constinit thread_local bool thread_exits __attribute__((tls_model("initial-exec"))) = false;

// Every ring that the thread holds, handed back at its exit. A file may be gone before that.
class HeldRings {
 public:
  HeldRings() = default;
  HeldRings(const HeldRings&) = delete;
  HeldRings& operator=(const HeldRings&) = delete;
  ~HeldRings() {
    thread_exits = true;
    cached = {};
    for (const Held& held : held_) {
      if (const auto file = held.file.lock()) file->release(held.ring);
    }
  }

  // The thread's ring in `file`, taken if need be; null if there is none left, or no memory to note it.
  Ring* of(const std::shared_ptr<File>& file) noexcept {
    for (const Held& held : held_) {
      if (held.id == file->id()) return held.ring;
    }
    std::erase_if(held_, [](const Held& held) { return held.file.expired(); });
    try {
      held_.reserve(held_.size() + 1);
    } catch (const std::bad_alloc&) {
      return nullptr;
    }
    Ring* ring = file->acquire();
    if (ring != nullptr) held_.push_back({file, file->id(), ring});
    return ring;
  }

 private:
  struct Held {
    std::weak_ptr<File> file;
    uint64_t id;
    Ring* ring;
  };
  std::vector<Held> held_;
};
thread_local HeldRings held_rings;

void write_attached(const std::shared_ptr<File>& file, const Record& record) noexcept {
  Ring* ring = held_rings.of(file);
  if (ring == nullptr) {
    file->drop();
    return;
  }
  cached = {file->id(), ring};
  ring->push(record);
}

// From a destructor that runs after this thread's rings were handed back.
void write_borrowed(File& file, const Record& record) noexcept {
  Ring* ring = file.acquire();
  if (ring == nullptr) {
    file.drop();
    return;
  }
  ring->push(record);
  file.release(ring);
}

}  // namespace

struct Trace::Guard {
  std::atomic<uint64_t> id;
  std::atomic<uint32_t> locked;
};

class Trace::GuardLock {
 public:
  explicit GuardLock(Guard& guard) : guard_(guard) {
    while (guard_.locked.exchange(1, std::memory_order_acquire) != 0) ::sched_yield();
  }
  GuardLock(const GuardLock&) = delete;
  GuardLock& operator=(const GuardLock&) = delete;
  ~GuardLock() { guard_.locked.store(0, std::memory_order_release); }

 private:
  Guard& guard_;
};

Trace::Trace(std::shared_ptr<File> file, Guard* guard)
    : guard_(guard),
      root_path_(file->path()),
      shape_(file->shape()),
      file_(std::move(file)),
      side_(std::make_unique<SideTable>(file_)) {
  guard_->id.store(file_->id(), std::memory_order_relaxed);
}

Trace::~Trace() {
  if (guard_->id.load(std::memory_order_relaxed) == 0) abandon_side_table();
  ::munmap(guard_, kPageBytes);
}

void Trace::write(const Record& record) noexcept {
  const bool attached = cached.id == guard_->id.load(std::memory_order_relaxed);
  if (attached && is_frequent(record.kind)) [[likely]] {
    cached.ring->push(record);
  } else {
    write_slowly(record);
  }
}

uint64_t Trace::intern(std::string_view text) noexcept {
  GuardLock lock(*guard_);
  if (!enter_process()) return 0;
  try {
    return side_->intern(text);
  } catch (const std::bad_alloc&) {
    return 0;
  }
}

void Trace::set(std::string_view key, std::string_view value) noexcept {
  GuardLock lock(*guard_);
  if (!enter_process()) return;
  try {
    side_->set(key, value);
  } catch (const std::bad_alloc&) {
    return;  // the report lacks one setting
  }
}

uint64_t Trace::dropped() const noexcept {
  GuardLock lock(*guard_);
  if (guard_->id.load(std::memory_order_relaxed) == 0) return 0;  // the count is the parent's
  const uint64_t in_file =
      file_ ? std::atomic_ref<uint64_t>(file_->header().dropped).load(std::memory_order_relaxed) : 0;
  return in_file + lost_.load(std::memory_order_relaxed);
}

const std::string& Trace::path() noexcept {
  GuardLock lock(*guard_);
  static const std::string kNone;
  return enter_process() ? file_->path() : kNone;
}

// A rare event, or the thread's first record in this file.
__attribute__((noinline)) void Trace::write_slowly(const Record& record) noexcept {
  std::shared_ptr<File> file;
  {
    GuardLock lock(*guard_);
    if (!enter_process()) {
      lost_.fetch_add(1, std::memory_order_relaxed);
      return;
    }
    if (!is_frequent(record.kind)) {
      file_->rare_ring().push(record);
      return;
    }
    file = file_;
  }
  if (thread_exits) {
    write_borrowed(*file, record);
  } else {
    write_attached(file, record);
  }
}

// REQUIRES: the lock. False where a forked child could not open a file of its own.
bool Trace::enter_process() noexcept {
  if (guard_->id.load(std::memory_order_relaxed) == 0) open_for_child();
  return file_ != nullptr;
}

void Trace::open_for_child() noexcept {
  abandon_side_table();
  lost_.store(0, std::memory_order_relaxed);
  const std::shared_ptr<File> parent = std::move(file_);
  file_ = nullptr;
  uint64_t id = kNoFile - 1;  // no file: every record comes here and is counted
  try {
    std::string error;
    auto file = File::create(root_path_ + "." + std::to_string(::getpid()), shape_, &error);
    if (file) {
      auto side = std::make_unique<SideTable>(file);
      if (parent) side->adopt(*parent);
      side_ = std::move(side);
      file_ = std::move(file);
      id = file_->id();
    }
  } catch (const std::bad_alloc&) {
    file_ = nullptr;
  }
  guard_->id.store(id, std::memory_order_relaxed);
}

// A thread of the parent's may have been changing it at the moment of the fork: not even its destructor is
// safe.
void Trace::abandon_side_table() noexcept {
  [[maybe_unused]] SideTable* const leaked = side_.release();
}

Trace::Guard* Trace::map_guard(std::string* error) {
  void* page = ::mmap(nullptr, kPageBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (page == MAP_FAILED) {
    *error = "no memory for a trace: " + std::generic_category().message(errno);
    return nullptr;
  }
  if (::madvise(page, kPageBytes, MADV_WIPEONFORK) != 0) {
    *error = "a trace needs madvise(MADV_WIPEONFORK), Linux 4.14 or newer: " +
             std::generic_category().message(errno);
    ::munmap(page, kPageBytes);
    return nullptr;
  }
  return new (page) Guard;
}

std::string Trace::obstacle(const std::string& path) {
  return obstacle_at(path);
}

std::unique_ptr<Trace> Trace::open(const std::string& path, const Options& options, std::string* error) {
  const Shape shape{options.rings + 1, options.records_per_ring, options.side_table_bytes};
  if (options.rings == 0 || !shape.valid()) {
    *error = "trace options: rings must be 1 to " + std::to_string(kMaxRings - 1) +
             ", records_per_ring a power of two from 2 on, both together at most " +
             std::to_string(kMaxRecords) + " records, side_table_bytes " + std::to_string(kPageBytes) +
             " to " + std::to_string(kMaxSideBytes);
    return nullptr;
  }
  Guard* guard = map_guard(error);
  if (guard == nullptr) return nullptr;
  std::shared_ptr<File> file = File::create(path, shape, error);
  if (!file) {
    ::munmap(guard, kPageBytes);
    return nullptr;
  }
  return std::unique_ptr<Trace>(new Trace(std::move(file), guard));
}

}  // namespace spillway::trace
