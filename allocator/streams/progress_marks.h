// Marks between the work that is queued on a device: by those that have passed somebody who waits for all of
// it sees that it gets on. The end of a queue alone does not tell that before it is there.
//
// Thread-safety: any thread, without the heap's lock, in the device's context. Ownership: of the events.
// Errors: none; a mark that cannot be made is left out.
#pragma once
#include <cstdint>
#include <vector>

#include "allocator/pages/device.h"
#include "base/mutex.h"

namespace spillway {

class ProgressMarks {
 public:
  explicit ProgressMarks(Device& device) : device_(device) {}
  // Behind what is queued on `stream`, which the caller knows to be there. Not while it is being captured. Of
  // more marks than are kept at once only some are made, so that they lie evenly in a queue of any length.
  void mark(StreamId stream);
  // How many have passed by now.
  uint64_t passed();
  // What the device took from one mark to the next, which was queued behind it: lately the most. 0: not
  // known.
  double slowest_us();
  // Nobody waits any more. Not in a forked child.
  void end();

 private:
  struct Mark {
    CUevent event = nullptr;
    StreamId stream{};
    bool behind = false;  // the one before was still ahead on that stream: the device has had no pause
  };

  bool is_due();
  void keep(Mark mark);
  void look() SPILLWAY_REQUIRES(mutex_);
  bool is_ahead(StreamId stream) SPILLWAY_REQUIRES(mutex_);
  void passes(const Mark& mark) SPILLWAY_REQUIRES(mutex_);
  void thin_out() SPILLWAY_REQUIRES(mutex_);

  Device& device_;
  Mutex<LockOrder::kProgressMarks> mutex_;
  std::vector<Mark> ahead_ SPILLWAY_GUARDED_BY(mutex_);  // oldest first
  // The last one of each stream that has passed, oldest first.
  std::vector<Mark> passed_last_ SPILLWAY_GUARDED_BY(mutex_);
  double slowest_us_ SPILLWAY_GUARDED_BY(mutex_) = 0;
  uint64_t passed_ SPILLWAY_GUARDED_BY(mutex_) = 0;
  // One mark is made of so many, and how many were asked for since the last.
  uint64_t stride_ SPILLWAY_GUARDED_BY(mutex_) = 1, since_ SPILLWAY_GUARDED_BY(mutex_) = 0;
};

}  // namespace spillway
