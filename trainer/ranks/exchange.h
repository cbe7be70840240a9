// What ranks exchange of a partition's groups, in rounds through one buffer: sums of gradients, weights,
// states of the optimizer.
//
// All ranks call the same functions for the same groups in one order. On a GPU the work is queued, in the
// current stream's order, or on a stream of the exchange's own beside that one. Nothing is allocated after
// the constructor, on a device.
//
// Thread-safety: one thread at a time, such as one that runs the forward and then autograd's of the device.
// Ownership: the buffer; borrows the ranks and the partition. Errors: LibTorch's and c10d's exceptions.
#pragma once
#include <functional>

#include "trainer/plan/parameters/partition.h"
#include "trainer/ranks/broken_round.h"
#include "trainer/ranks/ranks.h"
#include "trainer/residency/copy_stream.h"

namespace spillway::trainer {

class Exchange {
 public:
  // Of gradients of `type`.
  Exchange(Ranks& ranks, const Partition& partition, at::Device device, at::ScalarType type);

  uint32_t rank() const { return ranks_.rank(); }

  // Where a piece of a parameter lies: rows of contiguous tensors, the same on all ranks.
  using Tensors = std::function<std::vector<at::Tensor>(const Partition::Piece& piece)>;
  // Each rank's pieces of a group become the sums of all ranks' numbers; with `whole` all pieces do.
  // `after_round` is called when its tensors have got what they get.
  using AfterRound = std::function<void()>;
  // Goes on behind `*done` rounds and counts them there: where memory for a round's tensors runs out, the
  // next call goes on with that round, as the other ranks do. BrokenRound where it runs out within one.
  void sum(
      size_t group, const Tensors& gradients, bool whole, size_t* done,
      const AfterRound& after_round = [] {});
  // Takes part in the same rounds behind `*done` with whatever the buffer has.
  void drain(size_t group, bool whole, size_t* done);
  // Each rank's own pieces of a group come to all.
  void gather(size_t group, const Tensors& tensors, const AfterRound& after_round = [] {});
  // The same, of pieces that each rank has apart: all pieces of `wholes` get the owners' `shares`.
  void gather(size_t group, const Tensors& shares, const Tensors& wholes);
  // The sums of all ranks' `wholes` are added to each rank's own pieces of `shares`. BrokenRound where
  // memory runs out within.
  void add_up(size_t group, const Tensors& wholes, const Tensors& shares);

  // Whether there is a stream beside the current one: on a GPU, with other ranks.
  bool runs_beside() const { return stream_.has_value(); }
  // What `work` queues runs behind all that the current stream was given, and beside what it is given from
  // now on, until the mark that is returned; without such a stream, now. `again`: a mark that is no longer
  // needed, whose event is recorded anew in place of making one.
  CopyStream::Mark beside(const std::function<void()>& work, CopyStream::Mark again = nullptr);
  // What the current stream is given from now on is behind all of it. Each function above does so first.
  void join() const;

  // Bytes, for another exchange in the current stream's order; nothing in them outlasts a round.
  const at::Tensor& buffer() const { return join(), buffer_; }

 private:
  using Round = Partition::Round;
  // Rows of a rank's pieces, and where in the buffer they are exchanged.
  struct Places {
    std::vector<at::Tensor> here, there;
    void add(const Places& more);
  };
  at::Tensor part(int64_t rank, int64_t part_bytes) const;
  Places places(const Round& round, uint32_t rank, int64_t part_bytes, const Tensors& tensors) const;
  Places all_places(const Round& round, int64_t part_bytes, const Tensors& tensors) const;
  int64_t part_bytes(const Round& round, const Tensors& tensors) const;
  at::Tensor all_parts(int64_t part_bytes) const;
  at::Tensor in_buffer(const Round& round) const;

  Ranks& ranks_;
  const Partition& partition_;
  const at::Device device_;
  const at::ScalarType type_;
  at::Tensor buffer_;                  // bytes
  std::optional<c10::Stream> stream_;  // of a GPU
  CopyStream::Mark ready_, last_;
};

}  // namespace spillway::trainer
