#include "trainer/ranks/shares/rank_shares.h"

#include <c10/core/StreamGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>

namespace spillway::trainer {

RankShares::RankShares(const Partition& partition, Exchange& exchange, at::Device device)
    : partition_(partition), exchange_(exchange), rank_(exchange.rank()), device_(device) {
  if (!device.is_cuda()) return;
  stream_ = c10::impl::VirtualGuardImpl(device.type()).getStreamFromGlobalPool(device, false);
  ready_ = std::make_shared<c10::Event>(device.type());
}

CopyStream::Mark RankShares::beside(const std::function<void()>& work) {
  if (!stream_) return work(), nullptr;
  ready_->record(c10::impl::VirtualGuardImpl(device_.type()).getStream(device_));
  ready_->block(*stream_);
  const c10::StreamGuard guard(*stream_);
  last_ = std::make_shared<c10::Event>(device_.type());
  try {
    work();
  } catch (...) {
    last_->record(*stream_);  // some of it is under way
    throw;
  }
  last_->record(*stream_);
  return last_;
}

void RankShares::join() {
  compute_after(last_, device_);
}

Exchange::Tensors RankShares::wholes_of(const TensorOf& wholes) const {
  return [&wholes](const Partition::Piece& piece) -> std::vector<at::Tensor> {
    return {wholes(piece.parameter).narrow(0, piece.span.begin, piece.span.length)};
  };
}

Exchange::Tensors RankShares::shares_of(const TensorOf& shares) const {
  return [this, &shares](const Partition::Piece& piece) -> std::vector<at::Tensor> {
    const auto& [begin, length] = piece.span;
    const Span& own = partition_.sections(piece.parameter)[rank_];
    return {shares(piece.parameter).narrow(0, begin - own.begin, length)};
  };
}

void RankShares::gather(int unit, const TensorOf& shares, const TensorOf& wholes) {
  exchange_.gather(group_of(unit), shares_of(shares), wholes_of(wholes));
}

void RankShares::add_up(int unit, const TensorOf& wholes, const TensorOf& shares) {
  exchange_.add_up(group_of(unit), wholes_of(wholes), shares_of(shares));
}

}  // namespace spillway::trainer
