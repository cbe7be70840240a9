// The requests of a history, without the places that its allocator chose for them.
//
// Thread-safety: pure functions. Ownership: plain values. Errors: requests that a damaged file contradicts (a
// block freed twice) are passed over and counted. Units: bytes.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "tools/spillway/history/history.h"

namespace spillway::tools {

enum class RequestKind : uint8_t {
  kAllocate,
  kFreeLater,  // freed, but other streams still use it
  kFree        // free for other requests from now on
};

struct ReplayRequest {
  RequestKind kind = RequestKind::kAllocate;
  uint32_t block = 0;   // 0, 1, ... in the order of their allocation
  uint64_t bytes = 0;   // asked, not rounded
  uint32_t stream = 0;  // 0, 1, ... in the order of first use
  uint32_t pool = 0;    // likewise; 0: the default pool
};

struct Requests {
  std::vector<ReplayRequest> requests;
  std::vector<size_t> steps;  // before which request each step begins
  uint32_t blocks = 0, streams = 0, pools = 1;
  // The first requests are for blocks that were there before the history, by their addresses.
  size_t older = 0;
  uint64_t older_bytes = 0;
  uint64_t passed_over = 0;
  // What the history says of them; empty for requests that come from none.
  std::vector<StackId> stacks;         // by block
  std::vector<uint64_t> times;         // by request
  std::vector<uint64_t> stream_names;  // by number
  std::vector<PoolId> pool_names;

  StackId stack_of(uint32_t block) const { return block < stacks.size() ? stacks[block] : 0; }
  uint64_t time_of(size_t request) const { return request < times.size() ? times[request] : 0; }
  uint64_t stream_of(uint32_t stream) const {
    return stream < stream_names.size() ? stream_names[stream] : stream;
  }
  PoolId pool_of(uint32_t pool) const {
    return pool < pool_names.size() ? pool_names[pool] : PoolId{pool == 0 ? 0 : 1, pool};
  }
};

// Those of a device, before event `until`. Where that event is a failed request, it is the last of them.
Requests requests_of(const DeviceHistory& device, size_t until);

// Of a text, a line a request: "a ID BYTES STREAM", "f ID", "step". Nothing, and `error`, for another text.
std::optional<Requests> read_stream(const std::string& path, std::string* error);
// Whether the file begins as such a text does.
bool begins_as_stream(const std::string& start);

// The most bytes live at once, each request rounded up to 512.
uint64_t most_live(const Requests& requests);

}  // namespace spillway::tools
