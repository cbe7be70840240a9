#include "trainer/plan/estimates/step_times.h"

#include <algorithm>
#include <utility>

#include "trainer/plan/schedule.h"

namespace spillway::trainer {

// By how much a step is shorter because devices compute at the same time.
double StepTimes::overlap(const Memory& whole, const std::vector<double>& busy) const {
  const double count = micro_batches(plan_, shape_.batch), most = in_flight(plan_, shape_.batch),
               way = whole.time().seconds();
  if (most < 2 || way <= 0) return 1;
  const double slowest = *std::ranges::max_element(busy);
  const double pipelined = way + (count - 1) * std::max(slowest, way / most);
  return std::min(1.0,
                  std::max(pipelined, count * whole.launches() * machine_.launch_seconds) / (count * way));
}

void StepTimes::add(const StepTime& part, double times, double share) {
  time_.compute += times * share * part.compute;
  time_.memory += times * share * part.memory;
  time_.launches += times * share * part.launches;
  time_.host_link += times * share * part.host_link;
  time_.peer_link += times * share * part.peer_link;
  time_.nvme += times * share * part.nvme;
  time_.overlapped += times * share * part.overlapped;
  time_.operations += times * part.operations;
}

void StepTimes::add_passes(const Memory& whole, const Memory* rest, const std::vector<double>& busy) {
  const double share = overlap(whole, busy);
  add(whole.time(), micro_batches(plan_, shape_.batch) - (rest != nullptr ? 1 : 0), share);
  if (rest != nullptr) add(rest->time(), 1, share);
}

// The other stages are taken to be as fast as this one (Huang et al., "GPipe", 2019, section 2.3).
void StepTimes::add_stages(const Memory& whole) {
  const Stage& stage = shape_.stage;
  if (stage.is_alone()) return;
  const RankLinks& links = machine_.rank_links;
  const bool over_network = links.machines(shape_.ranks * stage.count) > 1;
  const double rate = over_network ? links.network_bytes_per_second : links.bytes_per_second;
  const double bytes = double(std::min(plan_.micro_batch, shape_.batch)) * shape_.model.context *
                       shape_.model.width * double(shape_.numerics.weight_bytes());
  const double hops = stage.count - 1;
  waits_ = hops * (whole.time().seconds() + 2 * bytes / rate);
  time_.ranks = waits_;
}

// The gradient is set to zero before the passes, which is no kernel, and read for the norm. An update goes
// through a parameter in tiles, which a device's cache holds, or in one kernel: value, gradient and states
// are read once, and all but the gradient are written once. Weights that have a master are written alone.
void StepTimes::add_update(const Update& update) {
  of_parameters_.push_back(0);
  if (update.of_all <= 0) return;  // another stage's
  const double rate =
      plan_.optimizer == Place::kPeer ? machine_.peer_bytes_per_second : machine_.host_bytes_per_second;
  const double share = update.elements / update.of_all, copies = 2 * update.state_tensors;
  const double of_gradient = update.elements * shape_.numerics.gradient_bytes();
  const double moved = (shape_.numerics.has_master_weights() ? 1 : 2) * share * update.stored_bytes +
                       2 * update.state_bytes + of_gradient;
  const auto longer = [this](double bytes, double launches) {
    return std::max(bytes / machine_.memory_bytes_per_second, launches * machine_.launch_seconds);
  };
  const double of_tiles = update.tiles * update.kernels.of_tile, before = update.kernels.of_parameter;
  of_parameters_.back() =
      longer(of_gradient, 0) + longer(of_gradient, before) + (update.on_host ? 0 : longer(moved, of_tiles));
  time_.optimizer += of_parameters_.back();
  if (update.on_host) {
    const RankLinks& links = machine_.rank_links;
    const uint32_t here = std::max(1u, shape_.ranks / std::max(1u, links.machines(shape_.ranks)));
    const double seconds = moved * here / machine_.host_memory_bytes_per_second;  // which all of them share
    on_host_ += seconds;
    return add_late(update, seconds);
  }
  const double link = update.elsewhere ? update.state_bytes / rate : 0;
  const double launches = of_tiles + before + update.tiles * copies;
  const double queue = update.elsewhere ? launches * machine_.launch_seconds : 0;
  link_ += link, queue_ += queue;
  const bool comes =
      update.unit >= 0 && plan_.gradients == plan_.optimizer;  // its gradient, over the same link
  add_late(update, std::max(link + (comes ? of_gradient / rate : 0), queue));
}

// `seconds`: until it can be updated, or of an update on the host until it has been.
void StepTimes::add_late(const Update& update, double seconds) {
  if (!has_late_updates()) return;
  const auto at = static_cast<size_t>(int64_t{update.unit} + 1);
  late_updates_.resize(std::max(late_updates_.size(), at + 1));
  LateUpdate& late = late_updates_[at];
  late.tiles += update.elsewhere ? update.tiles : 0;
  late.link += seconds;
  late.update += of_parameters_.back();
}

void StepTimes::end_update(uint64_t states_on_nvme, const Memory& first) {
  update_seconds_ = time_.optimizer;
  if (queue_ + on_host_ > 0) {
    const double shown = shown_by_states(first);
    (is_on_host()                      ? time_.optimizer
     : plan_.optimizer == Place::kPeer ? time_.peer_link
                                       : time_.host_link) += shown;
    update_seconds_ += shown;
  }
  add_streams(states_on_nvme);
}

// Beside the update; of late updates beside the forward too. An update on the host has no slots to wait for.
double StepTimes::shown_by_states(const Memory& first) {
  if (!has_late_updates()) return std::max(0.0, std::max(link_, queue_) - time_.optimizer) + on_host_;
  const std::vector<double>& entered = first.entered();
  double before = 0;
  for (size_t i = 0; i < late_updates_.size() && i < entered.size(); ++i)
    late_updates_[i].forward = entered[i] - std::exchange(before, entered[i]);
  constexpr double kAny = 1e18;
  return shown_by_late_updates(late_updates_, is_on_host() ? kAny : plan_.slots_of_update());
}

// A disk runs beside the link and what is computed, in the passes and in the update.
void StepTimes::add_streams(uint64_t states_on_nvme) {
  const LayerStreams::Copies passes = streams_.of_passes(micro_batches(plan_, shape_.batch)),
                             update = streams_.of_update();
  time_.streamed = passes.seconds(machine_);
  time_.streams_over_peers = passes.over_peers(machine_) > passes.over_host(machine_);
  const double of_peers = update.over_peers(machine_);
  time_.peer_link += of_peers, time_.host_link += update.seconds(machine_) - of_peers;
  const double bytes = double(states_on_nvme);
  const double states =
      bytes / machine_.nvme_read_bytes_per_second + bytes / machine_.nvme_write_bytes_per_second;
  time_.nvme +=
      std::max(0.0, passes.disk_seconds(machine_) - std::max(time_.passes(), time_.streamed)) +
      std::max(0.0, states + update.disk_seconds(machine_) - update_seconds_ - update.seconds(machine_));
}

// A link on which states come keeps all of them up alike.
std::vector<double> StepTimes::updates() const {
  std::vector<double> all = of_parameters_;
  for (double& seconds : all)
    if (time_.optimizer > 0) seconds *= update_seconds_ / time_.optimizer;
  return all;
}

uint64_t StepTimes::add_exchange(const RankExchange& exchange, const Memory& first, const Memory& last) {
  if (shape_.ranks < 2) return 0;
  RankExchange::Passes passes{.micro_batches = micro_batches(plan_, shape_.batch),
                              .seconds = last.time().seconds(),
                              .left = last.left(),
                              .entered = first.entered(),
                              .updates = updates(),
                              .sums_beside = machine_.host_is_apart && plan_.gradients == Place::kDevice,
                              .gathers_beside = machine_.host_is_apart && plan_.parameters == Place::kDevice};
  // Unlike copies from a home, none come at the end of a pass for the next one.
  if (shape_.zero > 2)
    passes.gathers =
        kGatheredSlots +
        uint32_t(copied_layers(units_in(training_uses(shape_.model, plan_), false), kGatheredSlots).size());
  const ExchangeTime time = exchange.of(passes);
  time_.ranks = waits_ + time.shown, time_.ranks_hidden = time.hidden;
  return uint64_t(time.sent_bytes);
}

}  // namespace spillway::trainer
