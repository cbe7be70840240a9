#include "trainer/plan/estimate.h"

#include <algorithm>
#include <array>
#include <optional>
#include <utility>

#include "trainer/plan/estimates/step_times.h"
#include "trainer/plan/parameters/optimizer_state.h"
#include "trainer/plan/parameters/parameter_table.h"
#include "trainer/plan/parameters/tiles.h"
#include "trainer/plan/parameters/weight_storage.h"
#include "trainer/plan/ranks/exchange_time.h"
#include "trainer/plan/ranks/kept_parameters.h"
#include "trainer/plan/streams.h"
#include "trainer/plan/tapes/dry_runs.h"
#include "trainer/plan/tapes/pipeline.h"

namespace spillway::trainer {

// What the optimizer keeps of a parameter.
struct KeptStates {
  uint64_t bytes = 0, tensors = 0;
};

namespace {

KeptStates kept_states(const Numerics& numerics, const UpdatedParameter& parameter) {
  KeptStates kept;
  for (const StateTensor& state : parameter.kept(numerics))
    if (state.bytes() > 0) kept.bytes += state.bytes(), ++kept.tensors;
  return kept;
}

}  // namespace

struct Estimator::Common {
  Common(const Shape& of, const Machine& on)
      : shape(of),
        machine(with_a_device(on)),
        table(parameter_table(of.model, of.stage)),
        units(units_of(table)),
        exchange(of, table, machine),
        kept(of, table) {
    for (const UpdatedParameter& parameter : kept.updated())
      states.push_back(kept_states(of.numerics, parameter));
  }

  // Of the table's parameters, whose states are elsewhere, or not.
  const std::vector<UpdateNeeds>& update(bool elsewhere) {
    std::vector<UpdateNeeds>& needs = update_[elsewhere ? 1 : 0];
    if (needs.empty())
      for (const UpdatedParameter& parameter : kept.updated())
        needs.push_back(update_needs(shape.numerics, parameter, elsewhere));
    return needs;
  }

  const NvmeShare& on_nvme() {
    if (!nvme_) nvme_ = nvme_share(shape.numerics, kept.updated(), machine.nvme_least_bytes);
    return *nvme_;
  }

  static Machine with_a_device(Machine machine) {
    machine.devices = std::max(1u, machine.devices);
    return machine;
  }

  const Shape shape;
  const Machine machine;
  const std::vector<Parameter> table;
  const std::vector<int> units;
  const RankExchange exchange;
  // Of the table's parameters: the same for every plan.
  const KeptParameters kept;
  std::vector<KeptStates> states;
  DryRuns runs{machine};

 private:
  std::array<std::vector<UpdateNeeds>, 2> update_;
  std::optional<NvmeShare> nvme_;
};

class Estimator::Counter {
 public:
  Counter(Common& common, const Plan& plan)
      : common_(common),
        runs_(common.runs),
        shape_(common.shape),
        model_(shape_.model),
        plan_(plan),
        machine_(common.machine),
        devices_(machine_.devices),
        micro_batch_(std::clamp(plan.micro_batch, 1u, std::max(1u, shape_.batch))),
        table_(common.table),
        of_rank_(common.kept),
        updated_(common.kept.updated()),
        kept_(common.states),
        streams_(shape_, plan, devices_, common.kept, machine_.nvme_least_bytes) {
    out_.device_peak_bytes.resize(devices_);
    out_.evaluation_peak_bytes.resize(devices_);
  }

  Estimate count() {
    count_persistent();
    out_.evaluation_peak_bytes = out_.device_peak_bytes;
    const Memory& step = runs_.of(pass(micro_batch_, true));
    const std::vector<uint64_t> more = of_more_in_flight(step);
    count_messages();
    const Memory& evaluation = runs_.of(pass(plan_.evaluation_batch, false));
    for (uint32_t device = 0; device < devices_; ++device) {
      for (size_t kind = 0; kind < kKinds; ++kind)
        add(name_of(static_cast<Kind>(kind)), device, step.at_peak(device)[kind]);
      add("other micro-batches under way", device, more[device]);
      out_.device_seconds.push_back(step.busy(device));
      out_.evaluation_peak_bytes[device] += evaluation.peak(device);
    }
    add_on_host("activations", step.host_bytes());
    add_on_host("buffers for activations", step.on_disk().buffers);
    add_on_nvme("activations", step.on_disk().file);
    for (const auto& [home, bytes] : step.peer_bytes()) {
      add_on_peer("activations", home.first, home.second, bytes);
      out_.evaluation_peak_bytes[home.second] += bytes;  // kept for the next step
    }
    count_time(step);
    return std::move(out_);
  }

 private:
  TapePass pass(uint32_t rows, bool training) const {
    TapePass pass{model_, plan_, rows, devices_, training, machine_.workspace_bytes};
    pass.precision = shape_.numerics.precision;
    pass.offload_least_bytes = shape_.offload_least_bytes;
    pass.tiles = tiles_of(plan_, shape_.numerics);
    pass.in_pieces = training && shape_.stage.is_alone() && in_flight(plan_, shape_) > 1;
    pass.stage = shape_.stage;
    return pass;
  }

  uint32_t device_of(int layer) const {
    return layer < 0 ? 0 : std::min(plan_.device_of(uint32_t(layer)), devices_ - 1);
  }

  void add(std::string name, uint32_t device, uint64_t bytes) {
    if (bytes == 0) return;
    out_.device_peak_bytes[device] += bytes;
    out_.items.push_back({std::move(name), device, false, bytes});
  }

  bool is_updated_on_host(size_t parameter) const {
    return table_[parameter].layer >= 0 && updates_on_host(plan_, shape_);
  }

  // Parameters, gradients and what the optimizer keeps: alive all the time.
  void count_persistent() {
    std::vector<uint64_t> sums(devices_), stored(devices_), states(devices_);
    std::vector<UpdateRoom> update(devices_);
    for (size_t i = 0; i < table_.size(); ++i) {
      const Parameter& parameter = table_[i];
      const uint32_t device = device_of(parameter.layer);
      const bool streams = parameter.layer >= 0;
      if (!streams || !is_away(plan_.gradients, device)) sums[device] += of_rank_.gradient_bytes(i);
      if (!streams || !is_away(plan_.parameters, device)) stored[device] += of_rank_.weight_bytes(i);
      if (!is_updated_on_host(i)) update[device].add(common_.update(is_away(plan_.optimizer, device))[i]);
      states[device] += kept_[i].bytes;
    }
    for (uint32_t device = 0; device < devices_; ++device) {
      add("parameters", device, stored[device]);
      add("gradients", device, sums[device]);
      add("slots for parameters", device, streams_.slots()[device].weights);
      add("slots for gradients", device, streams_.slots()[device].gradients);
      if (!is_away(plan_.optimizer, device)) add("optimizer state", device, states[device]);
      add("room to update in", device, update[device].bytes(plan_.slots_of_update()));
    }
    add("room for sums", 0, of_rank_.exchange_bytes());
    for (const Parameter& parameter : table_)
      if (parameter.is_twin)
        add("room for sums of two stages", 0,
            std::min(kTwinNumbers, parameter.elements()) * shape_.numerics.gradient_bytes());
    add("slots for whole parameters", 0, of_rank_.slots().weights);
    add("slots for whole gradients", 0, of_rank_.slots().gradients);
    add_on_host("parameters", streams_.on_host().weights);
    add_on_host("gradients", streams_.on_host().gradients);
    add_on_host("buffers for parameters", streams_.buffers().weights);
    add_on_host("buffers for gradients", streams_.buffers().gradients);
    add_on_nvme("parameters", streams_.on_nvme().weights);
    add_on_nvme("gradients", streams_.on_nvme().gradients);
    for (uint32_t device = 0; device < devices_; ++device) {
      add_on_peer("parameters", device, peer_of(device), streams_.on_peers()[device].weights);
      add_on_peer("gradients", device, peer_of(device), streams_.on_peers()[device].gradients);
    }
    count_states(states);
  }

  void count_states(const std::vector<uint64_t>& states) {
    if (plan_.optimizer == Place::kNvme) return count_nvme();
    uint64_t on_host = 0;
    for (uint32_t device = 0; device < devices_; ++device) {
      if (!is_away(plan_.optimizer, device)) continue;
      if (plan_.optimizer == Place::kPeer)
        add_on_peer("optimizer state", device, peer_of(device), states[device]);
      else
        on_host += states[device];
    }
    add_on_host("optimizer state", on_host);
  }

  // A peer that is missing is as none.
  uint32_t peer_of(uint32_t device) const { return std::min(plan_.peer_of(device), devices_ - 1); }
  bool is_away(Place place, uint32_t device) const {
    return plan_.is_away(place, device) && (place != Place::kPeer || peer_of(device) != device);
  }

  // As long as the plan lasts.
  void add_on_peer(const std::string& name, uint32_t device, uint32_t peer, uint64_t bytes) {
    add(name + " of device " + std::to_string(device), peer, bytes);
  }

  void add_on_host(std::string name, uint64_t bytes) {
    if (bytes == 0) return;
    out_.host_bytes += bytes;
    out_.items.push_back({std::move(name), 0, true, bytes});
  }

  void add_on_nvme(std::string name, uint64_t bytes) {
    if (bytes == 0) return;
    out_.nvme_bytes += bytes;
    out_.items.push_back({std::move(name), 0, false, bytes, true});
  }

  void count_nvme() {
    const NvmeShare& share = common_.on_nvme();
    add_on_host("optimizer state", share.host_bytes);
    add_on_host("buffers of the disk", share.buffer_bytes);
    add_on_nvme("optimizer state", share.file_bytes);
    states_on_nvme_ = share.file_bytes;
  }

  // Of a stage: what passes between it and its neighbours. Beside what graphs keep these are a gradient that
  // came, two messages that have not gone, and the slice that a step that is undone sends in their place.
  void count_messages() {
    const Stage& stage = shape_.stage;
    if (stage.is_alone()) return;
    const auto bytes = [&](uint32_t rows) {
      return uint64_t{rows} * model_.context * model_.width * shape_.numerics.weight_bytes();
    };
    const uint32_t gradients = (stage.is_last() ? 0 : 1) + (stage.is_first() ? 0 : 2);
    add("messages of stages", 0, (gradients + 1) * bytes(micro_batch_));
    out_.evaluation_peak_bytes[0] +=
        bytes(micro_batch_) + (stage.is_last() ? 0 : 2) * bytes(plan_.evaluation_batch);
  }

  // What devices have more at their peaks because others are under way beside the micro-batch that is there.
  std::vector<uint64_t> of_more_in_flight(const Memory& step) const {
    std::vector<uint64_t> more(devices_);
    const uint32_t most = in_flight(plan_, shape_);
    if (most < 2) return more;
    if (!shape_.stage.is_alone()) {
      more[0] = (most - 1) * step.kept();
      return more;
    }
    more = peaks_under_way(step.pieces(), micro_batches(plan_, shape_.batch), most);
    for (uint32_t device = 0; device < devices_; ++device) more[device] -= step.peak(device);
    return more;
  }

  // Of all micro-batches: equal ones, and one of the rows that are left.
  void count_time(const Memory& step) {
    const uint32_t left = std::max(1u, shape_.batch) % micro_batch_;
    const Memory* rest = left > 0 ? &runs_.of(pass(left, true)) : nullptr;
    StepTimes times(shape_, plan_, machine_, streams_);
    times.add_passes(step, rest, out_.device_seconds);
    times.add_stages(step);
    for (size_t i = 0; i < table_.size(); ++i) {
      const bool elsewhere = is_away(plan_.optimizer, device_of(table_[i].layer));
      times.add_update({.elements = double(updated_[i].elements()),
                        .of_all = double(table_[i].elements()),
                        .stored_bytes = double(stored_bytes(shape_.numerics, table_[i])),
                        .state_bytes = double(kept_[i].bytes),
                        .state_tensors = double(kept_[i].tensors),
                        .tiles = double(common_.update(elsewhere)[i].tiles),
                        .kernels = update_kernels(shape_.numerics, table_[i]),
                        .unit = common_.units[i],
                        .elsewhere = elsewhere,
                        .on_host = is_updated_on_host(i)});
    }
    times.end_update(states_on_nvme_, step);
    out_.sent_bytes = times.add_exchange(common_.exchange, step, rest != nullptr ? *rest : step);
    out_.time = times.time();
    out_.step_us = static_cast<uint64_t>(1e6 * out_.time.seconds());
  }

  Common& common_;
  DryRuns& runs_;
  const Shape& shape_;
  const Architecture& model_;
  const Plan& plan_;
  const Machine& machine_;
  const uint32_t devices_, micro_batch_;
  const std::vector<Parameter>& table_;
  const KeptParameters& of_rank_;
  const std::vector<UpdatedParameter>& updated_;
  const std::vector<KeptStates>& kept_;
  const LayerStreams streams_;
  uint64_t states_on_nvme_ = 0;  // bytes of what the optimizer keeps
  Estimate out_;
};

bool updates_on_host(const Plan& plan, const Shape& shape) {
  const bool together = shape.ranks > 1 && shape.zero > 0;
  return plan.updates_on_host() && !together && updates_at_once(shape.numerics);
}

uint32_t micro_batches(const Plan& plan, uint32_t batch) {
  const uint32_t rows = std::max(1u, batch), size = std::clamp(plan.micro_batch, 1u, rows);
  return (rows + size - 1) / size;
}

uint32_t in_flight(const Plan& plan, uint32_t batch) {
  return plan.streams() ? 1 : std::clamp(plan.pipeline, 1u, micro_batches(plan, batch));
}

uint32_t in_flight(const Plan& plan, const Shape& shape) {
  if (shape.stage.is_alone()) return in_flight(plan, shape.batch);
  return std::min(shape.stage.most_under_way(), micro_batches(plan, shape.batch));
}

Estimate estimate(const Shape& shape, const Plan& plan, const Machine& machine) {
  return Estimator(shape, machine).of(plan);
}

Estimator::Estimator(const Shape& shape, const Machine& machine)
    : common_(std::make_unique<Common>(shape, machine)) {}

Estimator::~Estimator() = default;

// Ranks update sharded states together, at the step's end.
Estimate Estimator::of(const Plan& plan) {
  const Shape& shape = common_->shape;
  if (!plan.just_in_time || shape.ranks < 2 || shape.zero == 0) return Counter(*common_, plan).count();
  Plan at_commit = plan;
  at_commit.just_in_time = false;
  return Counter(*common_, at_commit).count();
}

}  // namespace spillway::trainer
