#include "trainer/step/stages/twin_gradients.h"

#include <algorithm>

#include "trainer/ranks/broken_round.h"

namespace spillway::trainer {
namespace {

constexpr auto kRoundNumbers = int64_t{kTwinNumbers};

}  // namespace

TwinGradients::TwinGradients(const Mesh& mesh, Parameters& parameters, std::vector<Piece> pieces)
    : ends_(mesh.ends()),
      is_first_(mesh.stage().is_first()),
      parameters_(parameters),
      pieces_(std::move(pieces)) {
  int64_t most = 0;
  for (const Piece& piece : pieces_) most = std::max(most, std::min(kRoundNumbers, piece.span.length));
  if (most > 0) received_ = at::empty({most}, parameters_.gradient(pieces_.front().parameter).options());
}

void TwinGradients::add_up() {
  if (is_added_up_) return;
  const at::NoGradGuard no_grad;
  for (const auto& [parameter, span] : pieces_) {
    const at::Tensor all = parameters_.gradient(parameter).view({-1});
    for (int64_t begin = span.begin, end = span.begin + span.length; begin < end; begin += kRoundNumbers)
      add_up(all.narrow(0, begin, std::min(kRoundNumbers, end - begin)));
  }
  is_added_up_ = true;
}

void TwinGradients::add_up(const at::Tensor& mine) {
  const at::Tensor other = received_.narrow(0, 0, mine.numel());
  Ranks &away = is_first_ ? *ends_.forward : *ends_.backward,
        &here = is_first_ ? *ends_.backward : *ends_.forward;
  const uint32_t twin = is_first_ ? 1 : 0;
  in_a_round("a sum of two stages", [&] {
    away.send(mine, twin);
    here.receive(other, twin);
    away.wait_for_sent();
  });
  mine.add_(other);
}

std::vector<TwinGradients::Piece> twins_of(const std::vector<Parameter>& table, const Partition& partition,
                                           uint32_t replica, bool is_sharded) {
  std::vector<TwinGradients::Piece> pieces;
  for (size_t i = 0; i < table.size(); ++i) {
    if (!table[i].is_twin) continue;
    const Span all{0, int64_t(table[i].elements())};
    pieces.push_back({i, is_sharded ? partition.sections(i)[replica] : all});
  }
  return pieces;
}

}  // namespace spillway::trainer
