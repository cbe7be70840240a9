// When what layers keep has gone to a disk and is back, as trainer/residency/activations/kept_file.h has it.
//
// Each device has its file and its buffers of the host; the disk is one. A layer's record is written when the
// second one after it is copied, and a copy waits until the record that its buffer had is written. In the
// backward the two records before the present one are read ahead; those that are still in their buffers are
// not read.
//
// Thread-safety: one thread. Errors: none. Units: bytes, seconds.
#pragma once
#include <cstddef>
#include <cstdint>
#include <map>
#include <vector>

namespace spillway::trainer {

struct Machine;

class DiskOfLayers {
 public:
  explicit DiskOfLayers(const Machine& machine);

  // When the host has a buffer for the next record of `device`, or has that which comes back next; asked at
  // `now`, before the copy.
  double ready(uint32_t device, bool away, double now);
  // The copy that was asked for is done at `at`.
  void copied(uint32_t device, bool away, uint64_t bytes, double at);

  struct Bytes {
    uint64_t file = 0, buffers = 0;
  };
  Bytes bytes() const;

 private:
  struct Record {
    uint64_t bytes = 0;
    double copied = 0, written = 0;
    double read = -1;  // it has not begun
  };
  struct File {
    std::vector<Record> records;
    size_t back = 0;  // records that have come back
  };

  double pass(uint64_t bytes, double rate, double from);
  void read(File* file, size_t record, double now);

  double read_rate_, write_rate_;
  std::map<uint32_t, File> files_;
  double free_ = 0;  // when the disk has nothing more to do
};

}  // namespace spillway::trainer
