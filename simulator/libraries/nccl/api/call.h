// One call of a collective or of a send or receive: what of it all ranks have to agree on, how many bytes it
// reads and writes, and its words in an error.
//
// Thread-safety: values. Ownership: pointers are the program's. Errors: none. Units: count in elements,
// bytes.
#pragma once
#include <nccl.h>

#include <cstdint>
#include <string>
#include <vector>

#include "driver/simulator_control.h"

namespace spillway::nccl {

enum class Kind : uint32_t {
  kAllReduce,
  kReduce,
  kBroadcast,
  kAllGather,
  kReduceScatter,
  kAlltoAll,
  kGather,
  kScatter,
  kSend,
  kReceive,
};

enum class Reduction : uint32_t { kNone, kSum, kProduct, kMaximum, kMinimum, kAverage, kPreMulSum };

constexpr int32_t kNoRoot = -1;

// What lies in shared memory, and what ranks compare.
struct Signature {
  Kind kind = Kind::kAllReduce;
  Reduction reduction = Reduction::kNone;
  uint32_t type = 0;  // ncclDataType_t
  int32_t root = kNoRoot;
  uint64_t count = 0;

  bool operator==(const Signature&) const = default;
};

struct Call {
  Signature signature;
  int peer = kNoRoot;  // of a send or a receive
  const void* source = nullptr;
  void* target = nullptr;
  double scalar = 1;                    // of kPreMulSum, when it is known
  const void* device_scalar = nullptr;  // of kPreMulSum, when it is in device memory

  bool pairwise() const { return signature.kind == Kind::kSend || signature.kind == Kind::kReceive; }
};

uint64_t element_bytes(uint32_t type);

// What `rank` of `ranks` reads at the source and writes at the target.
uint64_t source_bytes(const Signature& signature, int rank, int ranks);
uint64_t target_bytes(const Signature& signature, int rank, int ranks);

void add_ranges(const Call& call, int rank, int ranks, std::vector<SpillwayRange>& out);

// "ncclAllReduce(1024 x ncclFloat32, ncclSum)".
std::string describe(const Signature& signature);
const char* function_name(Kind kind);

}  // namespace spillway::nccl
