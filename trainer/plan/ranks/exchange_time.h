// How long the ranks of a training exchange gradients and weights in a step, and how much of it is hidden
// beside the passes.
//
// What is exchanged follows from the partition, round by round (trainer/plan/parameters/partition.h). A rank
// sends (N - 1)/N of these bytes (Rajbhandari et al., "ZeRO", 2020, section 7), in a step of m micro-batches:
//
//   stage 0      sums, once: reduced and scattered, and gathered                     2 psi
//   stage 1      sums, reduced and scattered once; the weights gathered behind       psi + weights
//   stage 2      the same sums, of each micro-batch                                  m psi + weights
//   stage 3      and layers' weights, gathered for each use in a pass                m (psi + 2 weights)
//
// A group's sums go on a stream of their own as soon as the backward has left it, behind those before it:
// trainer/ranks/gradient_sums.h. What is left when the backward ends, nothing hides. Weights go behind their
// group's update, beside those behind it and the next forward, which waits for a group where it comes to it:
// what belongs to no layer is updated first, and used first. At stage 3 one unit's weights come while the one
// before computes: of a micro-batch shows what it exchanges longer than it computes, and at least the first
// unit's weights and the last one's sums.
//
// Thread-safety: immutable. Ownership: none. Errors: none. Units: bytes, seconds.
#pragma once
#include <vector>

#include "trainer/plan/estimate.h"
#include "trainer/plan/parameters/parameter_table.h"

namespace spillway::trainer {

struct ExchangeTime {
  double shown = 0, hidden = 0;
  double sent_bytes = 0;  // by a rank
};

class RankExchange {
 public:
  RankExchange(const Shape& shape, const std::vector<Parameter>& table, const Machine& machine);

  // What an estimate knows of the step's micro-batches.
  struct Passes {
    uint32_t micro_batches = 1;
    double seconds = 0;             // of one
    std::vector<double> left{};     // when its backward has left each part of a layer, the last one first
    std::vector<double> entered{};  // when its forward came to each part of a layer, the first one first
    std::vector<double> updates{};  // of each parameter of the table
    uint32_t gathers = 0;           // of units' weights, in one; at stage 3
    bool sums_beside = true;        // else behind the last backward
    bool gathers_beside = true;     // else each group's behind its update
  };
  ExchangeTime of(const Passes& passes) const;

 private:
  struct Group {
    double sum = 0, gather = 0;  // seconds, of gradients and of weights
    double sent_sum = 0, sent_weights = 0;
    std::vector<size_t> parameters{};
    void add(const Group& more);
  };
  double copies(double bytes) const;
  Group group_of(const std::vector<double>& rounds, double weights) const;
  double update_of(const Group& group, const Passes& passes) const;
  double shown_behind(const Passes& passes) const;
  double gathers() const;
  double shown_before(const Passes& passes) const;
  void add_gathers(const Passes& passes, ExchangeTime* time) const;

  const Machine machine_;
  const uint32_t ranks_, zero_;
  std::vector<Group> layers_;  // parts of layers, the last one first
  Group rest_{};               // what belongs to no layer, the same at both ends of a pipeline too
};

}  // namespace spillway::trainer
