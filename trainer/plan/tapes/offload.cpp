#include <algorithm>
#include <ranges>

#include "trainer/plan/tapes/tape.h"

namespace spillway::trainer {

double Memory::copy_beside(Home home, bool away, uint64_t bytes, double copies) {
  const double rate = home.is_host() ? machine_.host_bytes_per_second : machine_.peer_bytes_per_second;
  const double takes = double(bytes) / rate + copies * machine_.launch_seconds;
  const bool on_disk = home.nvme && bytes >= machine_.nvme_least_bytes;
  // The host's thread waits for a buffer, or for the disk.
  if (on_disk) time_.nvme += std::max(0.0, disk_.ready(home.device, away, time_.seconds()) - time_.seconds());
  double& free = link_free_[away ? 0 : 1];
  free = std::max(free, time_.seconds()) + takes;
  time_.overlapped += takes;
  if (on_disk)
    disk_.copied(home.device, away, bytes, free);
  else if (away)
    (home.is_host() ? host_bytes_ : peer_bytes_[{home.device, home.peer}]) += bytes;
  return free;
}

void Memory::wait_until(double seconds, Home home) {
  const double waits = std::max(0.0, seconds - time_.seconds());
  (home.is_host() ? time_.host_link : time_.peer_link) += waits;
  time_.overlapped -= waits;
}

void Tape::begin_layer() {
  if (mode_ == Mode::kTrains) layers_.push_back({.begin = recorded_.size()});
}

void Tape::find_kept(const std::vector<Tensor>& stay, uint64_t least_bytes, KeptLayer* layer) const {
  for (size_t i = layer->begin; i < layer->end; ++i) {
    const Operator& op = recorded_[i].op;
    for (const Tensor kept : op.keeps) {
      const Entry& entry = tensors_[kept];
      if (!entry.counts || entry.plain || entry.bytes < least_bytes || std::ranges::count(stay, kept))
        continue;
      const auto found = std::ranges::find(layer->tensors, kept, &std::pair<Tensor, uint32_t>::first);
      if (found != layer->tensors.end()) {
        ++found->second;
        continue;
      }
      layer->tensors.emplace_back(kept, 1);
      layer->bytes += entry.bytes;
    }
    if (op.keeps_more < least_bytes || op.keeps_more == 0) continue;
    layer->more.push_back(i);
    layer->bytes += op.keeps_more;
  }
}

void Tape::end_layer(uint32_t end, std::optional<uint32_t> until, Memory::Home home,
                     const std::vector<Tensor>& stay, uint64_t least_bytes) {
  if (mode_ != Mode::kTrains) return;
  KeptLayer& layer = layers_.back();
  layer.home = home;
  layer.end = recorded_.size();
  for (; !leaving_.empty() && leaving_.front().until < end; leaving_.pop_front()) {
    layer.left.push_back(leaving_.front().layer);
    leave_device(&layers_[layer.left.back()]);
  }
  if (!until) return;
  find_kept(stay, least_bytes, &layer);
  const auto copies = double(layer.tensors.size() + layer.more.size());
  layer.copied = memory_.copy_beside(home, true, layer.bytes, copies);
  leaving_.push_back({layers_.size() - 1, *until});
}

void Tape::leave_device(KeptLayer* layer) {
  memory_.wait_until(layer->copied, layer->home);
  for (const auto& [tensor, times] : layer->tensors)
    for (uint32_t i = 0; i < times; ++i) drop(tensor);
  for (const size_t i : layer->more)
    memory_.free(recorded_[i].device, recorded_[i].kind, recorded_[i].op.keeps_more);
  layer->away = true;
}

void Tape::bring_back(KeptLayer* layer) {
  if (!layer->away) return;
  layer->away = false;
  for (const auto& [tensor, times] : layer->tensors) {
    Entry& entry = tensors_[tensor];
    if (entry.holders == 0) memory_.allocate(entry.device, entry.kind, entry.bytes);
    entry.holders += times;
  }
  for (const size_t i : layer->more)
    memory_.allocate(recorded_[i].device, recorded_[i].kind, recorded_[i].op.keeps_more);
  const auto copies = double(layer->tensors.size() + layer->more.size());
  layer->copied = memory_.copy_beside(layer->home, false, layer->bytes, copies);
}

// What it kept is there, and what left at its end is on its way.
void Tape::backward_reaches_layer() {
  if (layers_.empty() || recorded_.size() != layers_.back().end) return;
  KeptLayer layer = std::move(layers_.back());
  layers_.pop_back();
  bring_back(&layer);
  memory_.wait_until(layer.copied, layer.home);
  for (const size_t left : layer.left | std::views::reverse) bring_back(&layers_[left]);
}

}  // namespace spillway::trainer
