// Reads and writes of files that run beside the program, many at a time.
//
// Thread-safety: one thread. Ownership: a request and its memory are the caller's, who leaves both alone
// until the request is given back; a queue that is destroyed waits for what is under way. Errors: a negative
// errno as the request's result.
#pragma once
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

namespace spillway::trainer {

struct IoRequest {
  bool writes = false;
  int file = -1;
  std::byte* data = nullptr;
  size_t bytes = 0;
  uint64_t offset = 0;
  int64_t result = 0;  // bytes, which may be fewer, or a negative errno
};

class IoQueue {
 public:
  virtual ~IoQueue() = default;
  // REQUIRES: fewer are under way than the depth.
  virtual void submit(IoRequest* request) = 0;
  // One that has ended; null where none has yet. With `wait` there is one, unless none is under way.
  virtual IoRequest* ended(bool wait) = 0;
};

// By io_uring. Null where the kernel has none, or refuses it, as it does in many containers.
std::unique_ptr<IoQueue> io_uring_queue(uint32_t depth, std::string* why_not);
// By a few threads that read and write.
std::unique_ptr<IoQueue> thread_queue();
// The first of these that there is; `remark` says why it is the second.
std::unique_ptr<IoQueue> make_io_queue(uint32_t depth, std::string* remark);

// For tests that need failures: each queue that make_io_queue makes from now on is what this makes of it.
// Null: as it is.
using IoQueueWrapper = std::unique_ptr<IoQueue> (*)(std::unique_ptr<IoQueue>);
void wrap_io_queues(IoQueueWrapper wrapper);

}  // namespace spillway::trainer
