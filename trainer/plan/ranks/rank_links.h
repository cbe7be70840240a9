// What carries that which the ranks of a training exchange, and how long a collective of them takes.
//
// NCCL passes what is reduced and scattered, or gathered, around rings: of B bytes of all ranks together each
// rank sends (N - 1)/N, in N - 1 steps from neighbour to neighbour. A call takes the time of its start, of
// its steps and of its bytes. It has three protocols, of which it takes the one that is fastest by this
// model. Small messages are faster with those that send more than the bytes themselves, and wait less.
//
// Trees pass a sum up and down in steps whose number grows with the logarithm of the machines'. NCCL has them
// for its all-reduce alone. `spillway-train` reduces and scatters, then gathers, and so passes rings.
//
// The model and its latencies are those by which NCCL itself chooses (src/graph/tuning.cc of 2.19).
//
// Thread-safety: values and pure functions. Errors: none. Units: bytes, seconds.
#pragma once
#include <cstdint>
#include <vector>

namespace spillway::trainer {

struct RankProtocol {
  double call_seconds = 0;           // a call's start
  double step_seconds = 0;           // from a rank to its neighbour on the same machine
  double network_seconds = 0;        // and to one on another machine
  double post_seconds = 0;           // of any step, where there are several machines
  double share_of_rate = 1;          // that the bytes themselves have of the links' rate
  double most_between_machines = 0;  // bytes a second, however fast the links are; 0: any
};

// Simple, LL and LL128, over NVLink or PCI Express within a machine. LL128 is for NVLink. A machine's network
// card is taken to be posted to in 1 us; Simple posts three times.
std::vector<RankProtocol> nccl_ring_protocols(bool nvlink);

// Rates are of one direction, of all rings together: NCCL's "bus bandwidth". Assumed, where nothing else is
// said: NVLink as between devices of one process; machines with eight cards, each with a network link of 200
// Gbit/s, as the data sheet of a DGX A100 has them.
struct RankLinks {
  double bytes_per_second = 50e9;
  double network_bytes_per_second = 25e9;  // of one rank's link to the network
  uint32_t ranks_per_machine = 8;          // 0: all are on one
  std::vector<RankProtocol> protocols = nccl_ring_protocols(true);

  uint32_t machines(uint32_t ranks) const;
};

// A reduce-scatter or an all-gather of `bytes` of all ranks together.
double ring_seconds(const RankLinks& links, uint32_t ranks, double bytes);
// An all-reduce of `bytes`, as NCCL would make it over trees with the same links.
double tree_seconds(const RankLinks& links, uint32_t ranks, double bytes);

}  // namespace spillway::trainer
