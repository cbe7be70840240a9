// What NCCL takes of a card for itself, and how long its collectives take: modelled, not measured. The sizes
// are those of NCCL 2.28's sources and documentation (simulator/libraries/nccl/README.md has the table).
//
// Thread-safety: constant. Ownership and errors: none. Units: bytes, virtual ns.
#pragma once
#include <cstdint>
#include <string_view>

#include "simulator/libraries/nccl/api/call.h"

namespace spillway::nccl {

// How the cards of a machine are connected, by the card's name.
struct Links {
  uint64_t channels;       // of collectives
  uint64_t pair_channels;  // to one peer, for sends and receives
  double bytes_per_ns;     // the bus bandwidth of large collectives
};
Links links_of(std::string_view card);

// NCCL_MIN_NCHANNELS and NCCL_MAX_NCHANNELS of the environment, and of the configuration unless negative.
Links limited(Links links, int least_channels, int most_channels);

// When a communicator is made.
uint64_t communicator_bytes(const Links& links, int ranks);
// When its ring is connected, at the first collective.
uint64_t ring_bytes(const Links& links);
// When a peer is connected, at the first send to it or receive from it.
uint64_t pair_bytes(const Links& links);

uint64_t duration_ns(const Links& links, const Signature& signature, int ranks);

}  // namespace spillway::nccl
