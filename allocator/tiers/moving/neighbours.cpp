#include "allocator/tiers/moving/neighbours.h"

namespace spillway {
namespace {

// The place in the chooser's order of the one that it put first.
const Move* first_of(const Neighbours& group) {
  return *std::ranges::min_element(group.moves);
}

}  // namespace

std::vector<Move*> beside_neighbours(std::vector<Move>& moves, uint64_t most_bytes) {
  std::vector<Move*> ordered;
  ordered.reserve(moves.size());
  for (Move& move : moves) ordered.push_back(&move);
  std::ranges::sort(ordered, {}, [](const Move* move) { return move->range.begin; });
  std::vector<Neighbours> groups;
  for (Move* move : ordered) {
    if (groups.empty() || !groups.back().continues(*move, most_bytes)) groups.emplace_back();
    groups.back().moves.push_back(move);
  }
  std::ranges::sort(groups, {}, first_of);
  ordered.clear();
  for (const Neighbours& group : groups)
    ordered.insert(ordered.end(), group.moves.begin(), group.moves.end());
  return ordered;
}

}  // namespace spillway
