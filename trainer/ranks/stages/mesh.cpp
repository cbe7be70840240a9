#include "trainer/ranks/stages/mesh.h"

#include <algorithm>
#include <numeric>

namespace spillway::trainer {

namespace {

// Sums make the communicators, and a message what NCCL needs for one, while there is memory for both.
void warm_up(const StageLink& link, bool is_earlier) {
  link.forward->warm_up(), link.backward->warm_up();
  const at::Tensor message = at::zeros({2}, at::device(link.forward->device()).dtype(at::kFloat));
  Ranks &to = is_earlier ? *link.forward : *link.backward,
        &from = is_earlier ? *link.backward : *link.forward;
  const uint32_t other = is_earlier ? 1 : 0;
  to.send(message.narrow(0, 0, 1), other);
  from.receive(message.narrow(0, 1, 1), other);
  to.wait_for_sent();
}

}  // namespace

Mesh::Mesh(std::shared_ptr<Ranks> all, const std::vector<uint32_t>& layers, bool has_twin_ends)
    : all_(std::move(all)) {
  const auto count = uint32_t(layers.size()), replicas = all_->size() / count;
  stages_.clear();
  for (uint32_t stage = 0; stage < count; ++stage) stages_.push_back(trainer::stage_of(layers, stage));
  stage_ = stages_[all_->rank() / replicas];
  std::vector<uint32_t> own(replicas);
  std::iota(own.begin(), own.end(), stage_.number * replicas);
  replicas_ = all_->among("stage/" + std::to_string(stage_.number), own);
  replicas_->warm_up();
  std::vector<uint32_t> leaders;
  for (uint32_t stage = 0; stage < count; ++stage) leaders.push_back(stage * replicas);
  if (replicas_->leads()) leaders_ = all_->among("leaders", leaders, at::kCPU);
  const uint32_t number = stage_.number;
  if (!stage_.is_first()) before_ = link("link", number - 1, number);
  if (!stage_.is_last()) after_ = link("link", number, number + 1);
  if (has_twin_ends && (stage_.is_first() || stage_.is_last())) ends_ = link("ends", 0, count - 1);
}

const Stage& Mesh::stage_with(const Parameter& parameter) const {
  return *std::ranges::find_if(stages_, [&](const Stage& stage) { return has(stage, parameter); });
}

StageLink Mesh::link(const std::string& name, uint32_t earlier, uint32_t later) const {
  const uint32_t replicas = replicas_->size(), replica = replicas_->rank();
  const std::vector<uint32_t> members{earlier * replicas + replica, later * replicas + replica};
  const std::string of = "/" + std::to_string(earlier) + "/" + std::to_string(replica);
  const StageLink link{.forward = all_->among(name + "-forward" + of, members),
                       .backward = all_->among(name + "-backward" + of, members)};
  warm_up(link, stage_.number == earlier);
  return link;
}

}  // namespace spillway::trainer
