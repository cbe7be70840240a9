// How the ranks' shares of a unit come together: through the exchange, on a GPU on a stream of its own beside
// the passes.
//
// Thread-safety: one thread at a time, such as one that runs the forward and then autograd's of the device.
// Ownership: borrows the partition and the exchange. Errors: LibTorch's and c10d's exceptions.
#pragma once
#include "trainer/ranks/exchange.h"
#include "trainer/step/shares/shares.h"

namespace spillway::trainer {

class RankShares : public ShareExchange {
 public:
  RankShares(const Partition& partition, Exchange& exchange, at::Device device);

  CopyStream::Mark beside(const std::function<void()>& work) override;
  void gather(int unit, const TensorOf& shares, const TensorOf& wholes) override;
  void add_up(int unit, const TensorOf& wholes, const TensorOf& shares) override;
  void join() override;

 private:
  size_t group_of(int unit) const { return size_t(int(partition_.groups()) - 2 - unit); }
  Exchange::Tensors wholes_of(const TensorOf& wholes) const;
  Exchange::Tensors shares_of(const TensorOf& shares) const;

  const Partition& partition_;
  Exchange& exchange_;
  const uint32_t rank_;
  const at::Device device_;
  std::optional<c10::Stream> stream_;  // of a GPU
  CopyStream::Mark ready_, last_;
};

}  // namespace spillway::trainer
