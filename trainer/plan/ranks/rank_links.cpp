#include "trainer/plan/ranks/rank_links.h"

#include <algorithm>
#include <bit>
#include <limits>

namespace spillway::trainer {
namespace {

// Of the rings' rate between neighbours: where machines are several, the network may be the slower one.
double rate_of(const RankLinks& links, uint32_t ranks) {
  if (links.machines(ranks) < 2) return links.bytes_per_second;
  return std::min(links.bytes_per_second, links.network_bytes_per_second * links.ranks_per_machine);
}

double rate_of(const RankProtocol& protocol, const RankLinks& links, uint32_t ranks) {
  const double rate = rate_of(links, ranks) * protocol.share_of_rate;
  const bool is_bounded = protocol.most_between_machines > 0 && links.machines(ranks) > 1;
  return is_bounded ? std::min(rate, protocol.most_between_machines) : rate;
}

// LL128 sends 128 bytes for 120.
constexpr double k128 = 120.0 / 128, kMostLowLatency = 19e9;

// Trees of an all-reduce: Simple, LL128 and LL.
std::vector<RankProtocol> tree_protocols() {
  constexpr double kShare = 0.92;
  return {{.step_seconds = 28e-6, .network_seconds = 28e-6, .share_of_rate = kShare},
          {14e-6, 1.25e-6, 8.5e-6, 0, kShare * k128, 0},
          {6.8e-6, 0.6e-6, 5e-6, 0, kShare / 3.8, kMostLowLatency}};
}

}  // namespace

std::vector<RankProtocol> nccl_ring_protocols(bool nvlink) {
  constexpr double kPost = 1e-6;
  std::vector<RankProtocol> protocols{
      {8.4e-6, nvlink ? 3.4e-6 : 5.7e-6, 14e-6, 3 * kPost, 1, 0},
      {6.6e-6, nvlink ? 0.6e-6 : 1e-6, 2.7e-6, kPost, 1.0 / 4, kMostLowLatency}};
  if (nvlink) protocols.push_back({14e-6, 1.9e-6, 4e-6, kPost, 0.92, 0});
  return protocols;
}

uint32_t RankLinks::machines(uint32_t ranks) const {
  return ranks_per_machine == 0 ? 1 : std::max(1u, (ranks + ranks_per_machine - 1) / ranks_per_machine);
}

double ring_seconds(const RankLinks& links, uint32_t ranks, double bytes) {
  if (ranks < 2) return 0;
  const uint32_t machines = links.machines(ranks), steps = ranks - 1, between = machines - 1;
  const double sent = bytes * steps / ranks;
  double least = std::numeric_limits<double>::infinity();
  for (const RankProtocol& protocol : links.protocols) {
    const double step =
        machines > 1 ? std::max(protocol.step_seconds, protocol.post_seconds) : protocol.step_seconds;
    least = std::min(least, protocol.call_seconds + (steps - between) * step +
                                between * protocol.network_seconds + sent / rate_of(protocol, links, ranks));
  }
  return least;
}

double tree_seconds(const RankLinks& links, uint32_t ranks, double bytes) {
  if (ranks < 2) return 0;
  const uint32_t machines = links.machines(ranks), on_each = (ranks + machines - 1) / machines;
  const auto levels = uint32_t(std::bit_width(machines) - 1);
  double least = std::numeric_limits<double>::infinity();
  for (const RankProtocol& protocol : tree_protocols())
    least =
        std::min(least, protocol.call_seconds +
                            2 * ((on_each - 1) * protocol.step_seconds + levels * protocol.network_seconds) +
                            2 * bytes / rate_of(protocol, links, ranks));
  return least;
}

}  // namespace spillway::trainer
