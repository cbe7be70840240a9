// What null mode knows of a device's bytes: small copies from the host, memsets, what copies and collectives
// made of them, and what somebody who knows the program's framework tells (`tell`). A kernel may have written
// anything: all is forgotten when one runs, unless the launching thread says that it will tell what was
// written (`confine`). So programs that decide sizes by values which went through device memory find them.
//
// Thread-safety: none of its own; used under the simulator's lock. Ownership: copies. Errors: what is too
// large is not known. Units: bytes.
#pragma once
#include <cuda.h>

#include <cstdint>
#include <map>
#include <optional>
#include <vector>

namespace spillway::simulator {

class KnownBytes {
 public:
  // Of one copy; of what is told at once; of all: then the larger pieces go, which no program decides by.
  static constexpr uint64_t kLargest = uint64_t{1} << 20, kLargestTold = uint64_t{32} << 20,
                            kMost = uint64_t{512} << 20;

  void put(CUdeviceptr address, const void* bytes, uint64_t size);
  // True when all of it is known.
  bool get(CUdeviceptr address, void* out, uint64_t size) const;
  void erase(CUdeviceptr address, uint64_t size);
  void clear();
  bool empty() const { return ranges_.empty(); }

 private:
  void make_room();

  std::map<CUdeviceptr, std::vector<char>> ranges_;  // none overlaps another
  uint64_t total_ = 0;
};

struct Device;

// The same for whatever device has the memory; nothing in computing mode and for host addresses.
void know(CUdeviceptr address, const void* bytes, uint64_t size);
bool find_known(CUdeviceptr address, void* out, uint64_t size);
void forget(CUdeviceptr address, uint64_t size);
// A kernel ran on the calling thread: it may have written to any device, unless the thread is confined.
void forget_written();
// While the sum of a thread's changes is above 0 its kernels make nothing unknown. Gives that sum.
int confine(int change);
// How many kernels the calling thread has submitted, captured ones included.
uint64_t& submitted_kernels();
// What the calling thread reads next, in at most 8 bytes, whatever is there; nullopt: what is there.
struct Answer {
  uint64_t value = 0;
  bool assumed = false;  // the most that it can be, because nobody knows it
};
std::optional<Answer>& next_answer();
// Between device addresses.
void copy_known(CUdeviceptr target, CUdeviceptr source, uint64_t size);

}  // namespace spillway::simulator
