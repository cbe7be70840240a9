#include "trainer/ranks/exchange.h"

#include <c10/core/StreamGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include <stdexcept>

#include "trainer/ranks/whole/row_gather.h"

namespace spillway::trainer {
namespace {

at::Tensor in_bytes(const at::Tensor& tensor) {
  return tensor.view({-1}).view(at::kByte);
}

// In one kernel: each copy by itself would take a GPU as long as thousands of numbers.
void copy_all(const std::vector<at::Tensor>& to, const std::vector<at::Tensor>& from) {
  if (!to.empty()) at::_foreach_copy_(to, from, /*non_blocking=*/true);
}

}  // namespace

void Exchange::Places::add(const Places& more) {
  here.insert(here.end(), more.here.begin(), more.here.end());
  there.insert(there.end(), more.there.begin(), more.there.end());
}

Exchange::Exchange(Ranks& ranks, const Partition& partition, at::Device device, at::ScalarType type)
    : ranks_(ranks), partition_(partition), device_(device), type_(type) {
  if (ranks.is_alone()) return;
  // What no piece fills is added up too: it is zero.
  buffer_ = at::zeros({int64_t(partition.buffer_bytes())}, at::device(device).dtype(at::kByte));
  if (!device.is_cuda()) return;
  stream_ = c10::impl::VirtualGuardImpl(device.type()).getStreamFromGlobalPool(device, false);
  ready_ = std::make_shared<c10::Event>(device.type());
}

CopyStream::Mark Exchange::beside(const std::function<void()>& work, CopyStream::Mark again) {
  if (!stream_) return work(), nullptr;
  ready_->record(c10::impl::VirtualGuardImpl(device_.type()).getStream(device_));
  ready_->block(*stream_);
  const c10::StreamGuard guard(*stream_);
  const CopyStream::Mark mark = again ? std::move(again) : std::make_shared<c10::Event>(device_.type());
  const auto end = [&] { mark->record(*stream_), last_ = mark; };
  try {
    work();
  } catch (...) {
    end();  // some of it is under way
    throw;
  }
  end();
  return mark;
}

void Exchange::join() const {
  compute_after(last_, device_);
}

at::Tensor Exchange::all_parts(int64_t part_bytes) const {
  return buffer_.narrow(0, 0, part_bytes * ranks_.size());
}

at::Tensor Exchange::part(int64_t rank, int64_t part_bytes) const {
  return buffer_.narrow(0, part_bytes * rank, part_bytes);
}

Exchange::Places Exchange::places(const Round& round, uint32_t rank, int64_t part_bytes,
                                  const Tensors& tensors) const {
  Places places;
  int64_t at = 0;
  const at::Tensor all = part(rank, part_bytes);
  for (const Partition::Piece& piece : round.of_rank[rank])
    for (const at::Tensor& tensor : tensors(piece)) {
      const auto bytes = int64_t(tensor.nbytes());
      const at::Tensor there = all.narrow(0, at, bytes);
      const bool has_type = at % tensor.element_size() == 0;  // else its bytes
      places.here.push_back(has_type ? tensor.view({-1}) : in_bytes(tensor));
      places.there.push_back(has_type ? there.view(tensor.scalar_type()) : there);
      at += bytes;
    }
  return places;
}

Exchange::Places Exchange::all_places(const Round& round, int64_t part_bytes, const Tensors& tensors) const {
  Places all;
  for (uint32_t rank = 0; rank < ranks_.size(); ++rank) all.add(places(round, rank, part_bytes, tensors));
  return all;
}

// Of numbers of gradients.
at::Tensor Exchange::in_buffer(const Round& round) const {
  return all_parts(round.elements * int64_t(c10::elementSize(type_))).view(type_);
}

int64_t Exchange::part_bytes(const Round& round, const Tensors& tensors) const {
  int64_t most = 0;
  for (const std::vector<Partition::Piece>& pieces : round.of_rank) {
    int64_t bytes = 0;
    for (const Partition::Piece& piece : pieces)
      for (const at::Tensor& tensor : tensors(piece)) bytes += int64_t(tensor.nbytes());
    most = std::max(most, aligned_part(bytes));
  }
  if (most * ranks_.size() > buffer_.numel())
    throw std::logic_error("a round of " + std::to_string(most) + " bytes a rank has no room in the buffer");
  return most;
}

void Exchange::sum(size_t group, const Tensors& gradients, bool whole, size_t* done,
                   const AfterRound& after_round) {
  if (ranks_.is_alone()) return;
  join();
  const at::NoGradGuard no_grad;
  const auto& rounds = partition_.rounds(group);
  for (; *done < rounds.size(); ++*done) {
    const Round& round = rounds[*done];
    const at::Tensor flat = in_buffer(round);
    const int64_t bytes = int64_t(flat.nbytes()) / ranks_.size();
    const Places mine = places(round, ranks_.rank(), bytes, gradients),
                 all = all_places(round, bytes, gradients);
    copy_all(all.there, all.here);
    in_a_round("a sum over the ranks", [&] {
      ranks_.reduce_scatter(flat);
      if (whole) ranks_.all_gather(flat);
      const Places& wanted = whole ? all : mine;
      copy_all(wanted.here, wanted.there);
      after_round();
    });
  }
}

void Exchange::add_up(size_t group, const Tensors& wholes, const Tensors& shares) {
  join();
  const at::NoGradGuard no_grad;
  for (const Round& round : partition_.rounds(group)) {
    const at::Tensor flat = in_buffer(round);
    const int64_t bytes = int64_t(flat.nbytes()) / ranks_.size();
    const Places all = all_places(round, bytes, wholes), mine = places(round, ranks_.rank(), bytes, shares);
    copy_all(all.there, all.here);
    in_a_round("a sum over the ranks", [&] {
      ranks_.reduce_scatter(flat);
      if (!mine.here.empty()) at::_foreach_add_(mine.here, mine.there);
    });
  }
}

void Exchange::gather(size_t group, const Tensors& shares, const Tensors& wholes) {
  join();
  const at::NoGradGuard no_grad;
  for (const Round& round : partition_.rounds(group)) {
    const int64_t bytes = part_bytes(round, wholes);
    const Places mine = places(round, ranks_.rank(), bytes, shares), all = all_places(round, bytes, wholes);
    copy_all(mine.there, mine.here);
    in_a_round("a sum over the ranks", [&] {
      ranks_.all_gather(all_parts(bytes));
      copy_all(all.here, all.there);
    });
  }
}

void Exchange::drain(size_t group, bool whole, size_t* done) {
  if (ranks_.is_alone()) return;
  join();
  const auto& rounds = partition_.rounds(group);
  for (; *done < rounds.size(); ++*done) {
    const at::Tensor flat = in_buffer(rounds[*done]);
    ranks_.reduce_scatter(flat);
    if (whole) ranks_.all_gather(flat);
  }
}

void Exchange::gather(size_t group, const Tensors& tensors, const AfterRound& after_round) {
  if (ranks_.is_alone()) return;
  join();
  const at::NoGradGuard no_grad;
  for (const Round& round : partition_.rounds(group)) {
    const int64_t bytes = part_bytes(round, tensors);
    const Places mine = places(round, ranks_.rank(), bytes, tensors);
    copy_all(mine.there, mine.here);
    in_a_round("a sum over the ranks", [&] {
      ranks_.all_gather(all_parts(bytes));
      Places others;
      for (uint32_t rank = 0; rank < ranks_.size(); ++rank)
        if (rank != ranks_.rank()) others.add(places(round, rank, bytes, tensors));
      copy_all(others.here, others.there);
      after_round();
    });
  }
}

}  // namespace spillway::trainer
