// The ranks of a training as a mesh: the stages of a pipeline, and of each stage as many replicas.
//
// Replicas of a stage have the same layers and other rows, and add up their gradients. The ranks of a line,
// one of each stage, have the same rows: what a stage computes passes to the next one of its line, and
// gradients pass back. Rank numbers count the replicas of the first stage, then those of the second, and so
// on, so that replicas, which exchange most, are neighbours.
//
// Thread-safety: one thread. Ownership: shares the ranks. Errors: those of Ranks.
#pragma once
#include <memory>
#include <vector>

#include "trainer/plan/stages/stage.h"
#include "trainer/ranks/ranks.h"

namespace spillway::trainer {

// Between two stages, the earlier one as rank 0 and the later one as rank 1; for each direction of its own,
// so that what passes forward and what passes back do not wait for each other.
struct StageLink {
  std::shared_ptr<Ranks> forward, backward;
};

class Mesh {
 public:
  Mesh() = default;  // of a process that is alone
  // Of ranks that are replicas, or alone.
  explicit Mesh(std::shared_ptr<Ranks> all) : all_(std::move(all)), replicas_(all_) {}
  // `layers`: of each stage. `has_twin_ends`: something is at the first stage and at the last one. All ranks
  // call it at once. REQUIRES: as many ranks of each stage.
  Mesh(std::shared_ptr<Ranks> all, const std::vector<uint32_t>& layers, bool has_twin_ends);

  const Stage& stage() const { return stage_; }
  bool has_stages() const { return !stage_.is_alone(); }
  const std::shared_ptr<Ranks>& all() const { return all_; }
  const std::shared_ptr<Ranks>& replicas() const { return replicas_; }
  uint32_t stage_of(uint32_t rank) const { return rank / replicas_->size(); }
  // The first replica of each stage, on their hosts, for what is written; of the other ranks nothing.
  const std::shared_ptr<Ranks>& leaders() const { return leaders_; }
  // The first one that has a parameter.
  const Stage& stage_with(const Parameter& parameter) const;
  const std::vector<Stage>& stages() const { return stages_; }
  // To the stages before and behind this one in its line; without ranks where there is none.
  const StageLink& before() const { return before_; }
  const StageLink& after() const { return after_; }
  // Between the first and the last stage of a line, on these, where something is on both.
  const StageLink& ends() const { return ends_; }

 private:
  StageLink link(const std::string& name, uint32_t earlier, uint32_t later) const;

  std::shared_ptr<Ranks> all_ = std::make_shared<Ranks>(), replicas_ = all_, leaders_;
  Stage stage_{};
  std::vector<Stage> stages_{Stage{}};
  StageLink before_{}, after_{}, ends_{};
};

}  // namespace spillway::trainer
