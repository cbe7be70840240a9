// An allocator that requests are replayed on.
//
// Thread-safety: none; one thread. Ownership: what it holds is given back when it goes. Errors: a request
// that finds no memory is false, and nothing changes but what the allocator gave back on the way. Units:
// bytes.
#pragma once
#include <cstdint>

namespace spillway::tools {

class Placement {
 public:
  virtual ~Placement() = default;
  // `block` is a number that is not in use. Streams and pools are numbers too; pool 0 is the default one.
  virtual bool allocate(uint32_t block, uint64_t bytes, uint32_t stream, uint32_t pool) = 0;
  // The program freed it, but other streams still use it.
  virtual void free_later(uint32_t block) = 0;
  virtual void free(uint32_t block) = 0;
  // Pages or segments held now, and the most at once so far.
  virtual uint64_t reserved() const = 0;
  virtual uint64_t most_reserved() const = 0;
  // The largest piece that is held and free, for requests of this stream and pool.
  virtual uint64_t largest_free(uint32_t stream, uint32_t pool, bool small) const = 0;
};

}  // namespace spillway::tools
