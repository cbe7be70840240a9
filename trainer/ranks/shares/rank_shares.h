// How the ranks' shares of a unit come together: through the exchange, on a GPU beside the passes.
//
// Thread-safety: that of the exchange. Ownership: borrows the partition and the exchange. Errors: LibTorch's
// and c10d's exceptions.
#pragma once
#include "trainer/ranks/exchange.h"
#include "trainer/step/shares/shares.h"

namespace spillway::trainer {

class RankShares : public ShareExchange {
 public:
  RankShares(const Partition& partition, Exchange& exchange)
      : partition_(partition), exchange_(exchange), rank_(exchange.rank()) {}

  CopyStream::Mark beside(const std::function<void()>& work) override { return exchange_.beside(work); }
  void gather(int unit, const TensorOf& shares, const TensorOf& wholes) override;
  void add_up(int unit, const TensorOf& wholes, const TensorOf& shares) override;

 private:
  size_t group_of(int unit) const { return size_t(int(partition_.groups()) - 2 - unit); }
  Exchange::Tensors wholes_of(const TensorOf& wholes) const;
  Exchange::Tensors shares_of(const TensorOf& shares) const;

  const Partition& partition_;
  Exchange& exchange_;
  const uint32_t rank_;
};

}  // namespace spillway::trainer
