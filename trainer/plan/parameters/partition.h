// How the ranks of a training share a model's numbers: who adds up which gradients, and with ZeRO who keeps
// what the optimizer has of them (Rajbhandari et al., "ZeRO: Memory Optimizations Toward Training Trillion
// Parameter Models", 2020).
//
// The parameters of a layer's part, one behind the other, are a group; those of no layer are another one, and
// so are those of them that are at both ends of a pipeline of stages. Groups follow each other as a backward
// comes to them. A group is cut into a piece for each rank, as equal as the units allow: blocks of quantised
// states, and rows of matrices in 8 bits, stay whole. So a rank has one section of a parameter at most. What
// ranks exchange of a group passes through a buffer in rounds. In each, every rank has a part of the buffer,
// and all parts are as large as the largest one needs to be.
//
// All of it follows from the shapes, the numerics and the number of ranks: it is the same on all ranks,
// whatever their plans are, and at every stage of ZeRO.
//
// Thread-safety: immutable. Errors: none. Units: elements, where no name says bytes.
#pragma once
#include <algorithm>
#include <cstdint>
#include <optional>
#include <vector>

#include "trainer/plan/numerics.h"
#include "trainer/plan/parameters/optimizer_state.h"
#include "trainer/plan/parameters/parameter_table.h"

namespace spillway::trainer {

// What passes in a round, about: as large as a bucket of DistributedDataParallel. Of many ranks more, so that
// each rank's part keeps the size that it has with 64: a ring goes through as many steps as there are ranks,
// and one of fewer bytes would rather wait than send (trainer/plan/ranks/rank_links.h).
inline constexpr int64_t kBucketBytes = 25 << 20;
constexpr int64_t bucket_bytes_of(uint32_t ranks) {
  return kBucketBytes * (ranks > 64 ? ranks : 64) / 64;
}

class Partition {
 public:
  struct Piece {
    size_t parameter = 0;
    Span span;
  };
  using Pieces = std::vector<std::vector<Piece>>;  // of each rank
  struct Round {
    int64_t elements = 0;  // of each rank's part of the buffer
    Pieces of_rank{};      // in the order of the part
  };

  Partition(const Numerics& numerics, const std::vector<Parameter>& table, uint32_t ranks,
            std::optional<int64_t> bucket_bytes = {});  // bucket_bytes_of(ranks)

  uint32_t ranks() const { return ranks_; }
  // From the last layer's last part to the first one's first, and behind them what belongs to no layer.
  size_t groups() const { return groups_.size(); }
  size_t group_of(size_t parameter) const { return group_of_[parameter]; }
  const std::vector<size_t>& parameters_of(size_t group) const { return groups_[group]; }
  int layer_of(size_t group) const { return layers_[group]; }
  // As units_of numbers the parts of layers; -1: of no layer.
  int part_number(size_t group) const { return std::max(-1, int(layer_groups_) - 1 - int(group)); }
  bool ends_group(size_t parameter) const { return groups_[group_of_[parameter]].back() == parameter; }
  const std::vector<Round>& rounds(size_t group) const { return rounds_[group]; }
  // Of a parameter, by rank; some have no elements.
  const std::vector<Span>& sections(size_t parameter) const { return sections_[parameter]; }
  // What the buffer needs for all rounds, of gradients and of weights.
  uint64_t buffer_bytes() const { return buffer_bytes_; }

  // What a rank updates of each parameter at a stage of ZeRO, and what it keeps of it: its own section from
  // stage 1 on. Before, all sections, one by one, so that the update has the same bits at every stage.
  std::vector<std::vector<Span>> updated(uint32_t rank, uint32_t zero) const;
  // A rank's own section of each parameter.
  std::vector<std::vector<Span>> own(uint32_t rank) const;
  // Of all parameters.
  int64_t own_elements(uint32_t rank) const;

 private:
  void make_groups(const std::vector<Parameter>& table);
  void cut(const std::vector<size_t>& group);
  int64_t boundary_near(const std::vector<size_t>& group, int64_t element) const;
  std::vector<Round> rounds_of(const std::vector<size_t>& group, int64_t most) const;

  const uint32_t ranks_;
  const bool whole_tiles_;
  std::vector<int64_t> elements_, units_;
  std::vector<size_t> group_of_;
  std::vector<std::vector<size_t>> groups_;
  std::vector<int> layers_;  // of groups
  size_t layer_groups_ = 0;
  std::vector<std::vector<Span>> sections_;
  std::vector<std::vector<Round>> rounds_;
  uint64_t buffer_bytes_ = 0;
};

// Whether an optimizer's states can be cut into sections: Adafactor's means of rows and columns cannot.
bool can_be_sharded(const Numerics& numerics);

}  // namespace spillway::trainer
