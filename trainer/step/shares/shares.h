// What one of several ranks keeps of parameters that they have together, and how it comes to all of them.
//
// Thread-safety: one thread at a time. Ownership: shares the exchange. Errors: those of the exchange.
#pragma once
#include <functional>
#include <memory>
#include <vector>

#include "trainer/plan/parameters/optimizer_state.h"
#include "trainer/residency/copy_stream.h"

namespace spillway::trainer {

// All ranks call the same functions for the same units in one order.
class ShareExchange {
 public:
  virtual ~ShareExchange() = default;
  // A parameter's numbers in a row: the whole of it, or a rank's share.
  using TensorOf = std::function<at::Tensor(size_t parameter)>;

  // What `work` queues runs behind all that the current stream was given, and beside what it is given from
  // now on, until the mark that is returned. The two below are called in it.
  virtual CopyStream::Mark beside(const std::function<void()>& work) = 0;
  // Of a unit, or -1: what belongs to none.
  virtual void gather(int unit, const TensorOf& shares, const TensorOf& wholes) = 0;
  virtual void add_up(int unit, const TensorOf& wholes, const TensorOf& shares) = 0;
};

// Without an exchange a process has all of everything.
struct Shares {
  std::vector<Span> own{};  // of each parameter, what this rank keeps of it
  bool of_values =
      false;  // of the layers' weights too (ZeRO-3), else of the sums of gradients alone (ZeRO-2)
  std::shared_ptr<ShareExchange> exchange = nullptr;
};

}  // namespace spillway::trainer
