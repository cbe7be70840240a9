#include "simulator/libraries/nccl/api/call.h"

#include <array>

namespace spillway::nccl {
namespace {

struct Type {
  const char* name;
  uint64_t bytes;
};
constexpr std::array<Type, ncclNumTypes> kTypes = {{{"ncclInt8", 1},
                                                    {"ncclUint8", 1},
                                                    {"ncclInt32", 4},
                                                    {"ncclUint32", 4},
                                                    {"ncclInt64", 8},
                                                    {"ncclUint64", 8},
                                                    {"ncclFloat16", 2},
                                                    {"ncclFloat32", 4},
                                                    {"ncclFloat64", 8},
                                                    {"ncclBfloat16", 2},
                                                    {"ncclFloat8e4m3", 1},
                                                    {"ncclFloat8e5m2", 1}}};

constexpr std::array<const char*, 7> kReductions = {"",        "ncclSum", "ncclProd", "ncclMax",
                                                    "ncclMin", "ncclAvg", "PreMulSum"};

}  // namespace

const char* function_name(Kind kind) {
  constexpr std::array<const char*, 10> kNames = {
      "ncclAllReduce", "ncclReduce", "ncclBroadcast", "ncclAllGather", "ncclReduceScatter",
      "ncclAlltoAll",  "ncclGather", "ncclScatter",   "ncclSend",      "ncclRecv"};
  const auto index = static_cast<size_t>(kind);
  return index < kNames.size() ? kNames[index] : "?";
}

uint64_t element_bytes(uint32_t type) {
  return type < kTypes.size() ? kTypes[type].bytes : 0;
}

uint64_t source_bytes(const Signature& signature, int rank, int ranks) {
  const uint64_t bytes = signature.count * element_bytes(signature.type);
  switch (signature.kind) {
    case Kind::kReduceScatter:
    case Kind::kAlltoAll:
      return bytes * static_cast<uint64_t>(ranks);
    case Kind::kBroadcast:
      return rank == signature.root ? bytes : 0;
    case Kind::kScatter:
      return rank == signature.root ? bytes * static_cast<uint64_t>(ranks) : 0;
    case Kind::kReceive:
      return 0;
    default:
      return bytes;
  }
}

uint64_t target_bytes(const Signature& signature, int rank, int ranks) {
  const uint64_t bytes = signature.count * element_bytes(signature.type);
  switch (signature.kind) {
    case Kind::kAllGather:
    case Kind::kAlltoAll:
      return bytes * static_cast<uint64_t>(ranks);
    case Kind::kReduce:
      return rank == signature.root ? bytes : 0;
    case Kind::kGather:
      return rank == signature.root ? bytes * static_cast<uint64_t>(ranks) : 0;
    case Kind::kSend:
      return 0;
    default:
      return bytes;
  }
}

void add_ranges(const Call& call, int rank, int ranks, std::vector<SpillwayRange>& out) {
  const auto add = [&](const void* address, uint64_t bytes, uint32_t writes) {
    if (bytes > 0) out.push_back({reinterpret_cast<CUdeviceptr>(address), bytes, writes});
  };
  add(call.source, source_bytes(call.signature, rank, ranks), 0);
  add(call.target, target_bytes(call.signature, rank, ranks), 1);
  if (call.device_scalar) add(call.device_scalar, element_bytes(call.signature.type), 0);
}

std::string describe(const Signature& signature) {
  const char* type = signature.type < kTypes.size() ? kTypes[signature.type].name : "?";
  std::string text =
      std::string(function_name(signature.kind)) + "(" + std::to_string(signature.count) + " x " + type;
  const auto reduction = static_cast<size_t>(signature.reduction);
  if (signature.reduction != Reduction::kNone && reduction < kReductions.size())
    text += std::string(", ") + kReductions[reduction];
  if (signature.root != kNoRoot) text += ", root " + std::to_string(signature.root);
  return text + ")";
}

}  // namespace spillway::nccl
