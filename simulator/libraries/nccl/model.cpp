#include "simulator/libraries/nccl/model.h"

#include <algorithm>
#include <cstdlib>

namespace spillway::nccl {
namespace {

constexpr uint64_t kKiB = 1024, kMiB = 1024 * kKiB;
constexpr uint64_t kGranule = 2 * kMiB;  // each buffer is a mapping of its own
constexpr uint64_t kLaunchNs = 10'000;

// The three protocols' buffers: LL has 512 threads x 8 lines x 8 steps x 16 bytes, LL128 640 threads x 120
// elements x 8 steps x 8 bytes, Simple NCCL_BUFFSIZE.
constexpr uint64_t kLowLatencyBytes = uint64_t{512} * 8 * 8 * 16,
                   kLowLatency128Bytes = uint64_t{640} * 120 * 8 * 8;
constexpr uint64_t kSimpleBytes = 4 * kMiB;
constexpr uint64_t kFlagsBytes = 4 * kKiB;      // what sender and receiver tell each other
constexpr uint64_t kChannelBytes = 8 * kKiB;    // of the device's table of channels, and of each peer in it
constexpr uint64_t kWorkQueueBytes = 4 * kMiB;  // NCCL_WORK_FIFO_BYTES and the communicator's own structures

uint64_t from_environment(const char* name, uint64_t otherwise) {
  const char* text = std::getenv(name);
  char* end = nullptr;
  const unsigned long long value = text ? std::strtoull(text, &end, 10) : 0;
  return text && end != text && *end == 0 && value > 0 ? value : otherwise;
}

uint64_t rounded(uint64_t bytes) {
  return (bytes + kGranule - 1) / kGranule * kGranule;
}

// Of one direction of one channel: flags at the sender's, flags and the protocols' buffers at the receiver's.
uint64_t connection_bytes() {
  const uint64_t simple = from_environment("NCCL_BUFFSIZE", kSimpleBytes);
  return rounded(kFlagsBytes) + rounded(kFlagsBytes + kLowLatencyBytes + kLowLatency128Bytes + simple);
}

struct Card {
  std::string_view part_of_name;
  Links links;
};
// In this order: the first that fits. Cards that are not here meet over PCIe.
constexpr Card kConnected[] = {
    {"B200", {32, 32, 700}}, {"H200", {24, 32, 360}}, {"H100", {24, 32, 360}},
    {"A100", {24, 32, 230}}, {"V100", {12, 16, 130}},
};
constexpr Links kPciExpress = {4, 2, 12};

}  // namespace

Links links_of(std::string_view card) {
  for (const Card& known : kConnected)
    if (card.find(known.part_of_name) != std::string_view::npos) return known.links;
  return kPciExpress;
}

Links limited(Links links, int least_channels, int most_channels) {
  const uint64_t least = from_environment("NCCL_MIN_NCHANNELS", least_channels > 0 ? least_channels : 1);
  const uint64_t most = from_environment("NCCL_MAX_NCHANNELS", most_channels > 0 ? most_channels : 64);
  links.channels = std::min(std::max(links.channels, least), std::max(most, uint64_t{1}));
  links.pair_channels = std::min(links.pair_channels, std::max(most, uint64_t{1}));
  return links;
}

uint64_t communicator_bytes(const Links& links, int ranks) {
  if (ranks == 1) return kGranule;
  return rounded(kWorkQueueBytes + links.channels * kChannelBytes * static_cast<uint64_t>(ranks));
}

uint64_t ring_bytes(const Links& links) {
  return links.channels * connection_bytes();
}

uint64_t pair_bytes(const Links& links) {
  return links.pair_channels * connection_bytes();
}

uint64_t duration_ns(const Links& links, const Signature& signature, int ranks) {
  const double bytes = static_cast<double>(signature.count * element_bytes(signature.type));
  const double others = ranks - 1;
  double moved = bytes;  // over the slowest link
  switch (signature.kind) {
    case Kind::kAllReduce:
      moved = 2 * bytes * others / ranks;
      break;
    case Kind::kAllGather:
    case Kind::kReduceScatter:
    case Kind::kAlltoAll:
    case Kind::kGather:
    case Kind::kScatter:
      moved = bytes * others;
      break;
    default:
      break;
  }
  return kLaunchNs + static_cast<uint64_t>(ranks == 1 ? 0 : moved / links.bytes_per_ns);
}

}  // namespace spillway::nccl
