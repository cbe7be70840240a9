#include "trainer/plan/estimate.h"

#include <algorithm>
#include <cstdio>
#include <utility>

#include "trainer/plan/parameters/optimizer_state.h"
#include "trainer/plan/parameters/parameter_table.h"
#include "trainer/plan/parameters/tiles.h"
#include "trainer/plan/parameters/weight_storage.h"
#include "trainer/plan/ranks/kept_parameters.h"
#include "trainer/plan/streams.h"
#include "trainer/plan/tapes/dry_runs.h"
#include "trainer/plan/tapes/pipeline.h"

namespace spillway::trainer {
namespace {

// What the optimizer keeps of a parameter.
struct KeptStates {
  uint64_t bytes = 0, tensors = 0;
};

KeptStates kept_states(const Numerics& numerics, const UpdatedParameter& parameter) {
  KeptStates kept;
  for (const StateTensor& state : parameter.kept(numerics))
    if (state.bytes() > 0) kept.bytes += state.bytes(), ++kept.tensors;
  return kept;
}

}  // namespace

struct Estimator::Common {
  Common(const Shape& of, const Machine& on)
      : shape(of), machine(with_a_device(on)), table(parameter_table(of.model)), kept(of, table) {
    for (const UpdatedParameter& parameter : kept.updated())
      states.push_back(kept_states(of.numerics, parameter));
  }

  static Machine with_a_device(Machine machine) {
    machine.devices = std::max(1u, machine.devices);
    return machine;
  }

  const Shape shape;
  const Machine machine;
  const std::vector<Parameter> table;
  // Of the table's parameters: the same for every plan.
  const KeptParameters kept;
  std::vector<KeptStates> states;
  DryRuns runs{machine};
};

class Estimator::Counter {
 public:
  Counter(Common& common, const Plan& plan)
      : runs_(common.runs),
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
    const Memory& evaluation = runs_.of(pass(plan_.evaluation_batch, false));
    for (uint32_t device = 0; device < devices_; ++device) {
      for (size_t kind = 0; kind < kKinds; ++kind)
        add(name_of(static_cast<Kind>(kind)), device, step.at_peak(device)[kind]);
      add("other micro-batches under way", device, more[device]);
      out_.device_seconds.push_back(step.busy(device));
      out_.evaluation_peak_bytes[device] += evaluation.peak(device);
    }
    add_on_host("activations", step.host_bytes());
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
    pass.in_pieces = training && in_flight(plan_, shape_.batch) > 1;
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

  // Parameters, gradients and what the optimizer keeps: alive all the time.
  void count_persistent() {
    const Numerics& numerics = shape_.numerics;
    std::vector<uint64_t> sums(devices_), stored(devices_), states(devices_);
    std::vector<std::vector<UpdatedParameter>> updated(devices_);
    for (size_t i = 0; i < table_.size(); ++i) {
      const Parameter& parameter = table_[i];
      const uint32_t device = device_of(parameter.layer);
      const bool streams = parameter.layer >= 0;
      if (!streams || !is_away(plan_.gradients, device)) sums[device] += of_rank_.gradient_bytes(i);
      if (!streams || !is_away(plan_.parameters, device)) stored[device] += of_rank_.weight_bytes(i);
      updated[device].push_back(updated_[i]);
      states[device] += kept_[i].bytes;
    }
    for (uint32_t device = 0; device < devices_; ++device) {
      add("parameters", device, stored[device]);
      add("gradients", device, sums[device]);
      add("slots for parameters", device, streams_.slots()[device].weights);
      add("slots for gradients", device, streams_.slots()[device].gradients);
      const bool elsewhere = is_away(plan_.optimizer, device);
      if (!elsewhere) add("optimizer state", device, states[device]);
      add("room to update in", device, update_scratch_bytes(numerics, updated[device], elsewhere));
    }
    add("room for sums", 0, of_rank_.exchange_bytes());
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
    const NvmeShare share = nvme_share(shape_.numerics, updated_, machine_.nvme_least_bytes);
    add_on_host("optimizer state", share.host_bytes);
    add_on_host("buffers of the disk", share.buffer_bytes);
    add_on_nvme("optimizer state", share.file_bytes);
    states_on_nvme_ = share.file_bytes;
  }

  // What devices have more at their peaks because others are under way beside the micro-batch that is there.
  std::vector<uint64_t> of_more_in_flight(const Memory& step) const {
    std::vector<uint64_t> more(devices_);
    const uint32_t most = in_flight(plan_, shape_.batch);
    if (most < 2) return more;
    more = peaks_under_way(step.pieces(), micro_batches(plan_, shape_.batch), most);
    for (uint32_t device = 0; device < devices_; ++device) more[device] -= step.peak(device);
    return more;
  }

  // By how much a step is shorter because devices compute at the same time.
  double overlap(const Memory& step) const {
    const double count = micro_batches(plan_, shape_.batch), most = in_flight(plan_, shape_.batch),
                 way = step.time().seconds();
    if (most < 2 || way <= 0) return 1;
    const double slowest = *std::ranges::max_element(out_.device_seconds);
    const double pipelined = way + (count - 1) * std::max(slowest, way / most);
    return std::min(1.0,
                    std::max(pipelined, count * step.launches() * machine_.launch_seconds) / (count * way));
  }

  // Of all micro-batches: equal ones, and one of the rows that are left.
  void count_time(const Memory& step) {
    const uint32_t batch = std::max(1u, shape_.batch), left = batch % micro_batch_;
    const uint32_t whole = batch / micro_batch_;
    const double share = overlap(step);
    add_time(step.time(), whole, share);
    if (left > 0) add_time(runs_.of(pass(left, true)).time(), 1, share);
    count_optimizer();
    count_streams(whole + (left > 0 ? 1 : 0));
    out_.step_us = static_cast<uint64_t>(1e6 * out_.time.seconds());
  }

  // A disk runs beside the link and what is computed, in the passes and in the update.
  void count_streams(uint32_t micro_batches) {
    const LayerStreams::Copies passes = streams_.of_passes(micro_batches), update = streams_.of_update();
    StepTime& time = out_.time;
    time.streamed = passes.seconds(machine_);
    time.streams_over_peers = passes.over_peers(machine_) > passes.over_host(machine_);
    const double of_peers = update.over_peers(machine_);
    time.peer_link += of_peers, time.host_link += update.seconds(machine_) - of_peers;
    const double bytes = double(states_on_nvme_);
    const double states =
        bytes / machine_.nvme_read_bytes_per_second + bytes / machine_.nvme_write_bytes_per_second;
    time.nvme =
        std::max(0.0, passes.disk_seconds(machine_) - std::max(time.passes(), time.streamed)) +
        std::max(0.0, states + update.disk_seconds(machine_) - update_seconds_ - update.seconds(machine_));
  }

  void add_time(const StepTime& part, double times, double share) {
    out_.time.compute += times * share * part.compute;
    out_.time.memory += times * share * part.memory;
    out_.time.launches += times * share * part.launches;
    out_.time.host_link += times * share * part.host_link;
    out_.time.peer_link += times * share * part.peer_link;
    out_.time.overlapped += times * share * part.overlapped;
    out_.time.operations += times * part.operations;
  }

  // An update goes through a parameter in tiles, which a device's cache holds, or in one kernel: value,
  // gradient and states are read and written once. Before, the gradient is set to zero, and read for the
  // norm.
  void count_optimizer() {
    const Numerics& numerics = shape_.numerics;
    const double kernels =
        numerics.optimizer == OptimizerKind::kAdamW8bit && !numerics.rounds_stochastically() ? 3 : 10;
    // A direction of the link to where they are; the host, which queues kernels and copies.
    double link = 0, queue = 0;
    const bool on_peers = plan_.optimizer == Place::kPeer;
    const double rate = on_peers ? machine_.peer_bytes_per_second : machine_.host_bytes_per_second;
    for (size_t i = 0; i < table_.size(); ++i) {
      const Parameter& parameter = table_[i];
      const bool elsewhere = is_away(plan_.optimizer, device_of(parameter.layer));
      const auto elements = double(updated_[i].elements()), share = elements / double(parameter.elements());
      const auto tiles = double(tiles_of(numerics, updated_[i], elsewhere).size());
      const auto states = double(kept_[i].bytes), copies = 2 * double(kept_[i].tensors);
      const double bytes = 2 * (share * double(stored_bytes(numerics, parameter)) +
                                2 * elements * numerics.gradient_bytes() + states);
      out_.time.optimizer +=
          std::max(bytes / machine_.memory_bytes_per_second, tiles * kernels * machine_.launch_seconds);
      if (!elsewhere) continue;
      link += states / rate;
      queue += tiles * (kernels + copies) * machine_.launch_seconds;
    }
    update_seconds_ = out_.time.optimizer;
    if (queue == 0) return;
    link = std::max(link, queue);
    (on_peers ? out_.time.peer_link : out_.time.host_link) += std::max(0.0, link - out_.time.optimizer);
    update_seconds_ = std::max(link, out_.time.optimizer);
  }

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
  double update_seconds_ = 0;    // of the update, without the disk and without layers' copies
  Estimate out_;
};

uint32_t micro_batches(const Plan& plan, uint32_t batch) {
  const uint32_t rows = std::max(1u, batch), size = std::clamp(plan.micro_batch, 1u, rows);
  return (rows + size - 1) / size;
}

uint32_t in_flight(const Plan& plan, uint32_t batch) {
  return plan.streams() ? 1 : std::clamp(plan.pipeline, 1u, micro_batches(plan, batch));
}

Estimate estimate(const Shape& shape, const Plan& plan, const Machine& machine) {
  return Estimator(shape, machine).of(plan);
}

Estimator::Estimator(const Shape& shape, const Machine& machine)
    : common_(std::make_unique<Common>(shape, machine)) {}

Estimator::~Estimator() = default;

Estimate Estimator::of(const Plan& plan) {
  return Counter(*common_, plan).count();
}

const char* StepTime::limit() const {
  const std::pair<double, const char*> parts[] = {
      {compute, "compute"},
      {memory, "device memory"},
      {launches, "launches"},
      {optimizer, "optimizer"},
      {host_link, "host link"},
      {peer_link, "peer link"},
      {nvme, "NVMe"},
      {streamed > passes() ? streamed : 0, streams_over_peers ? "peer link" : "host link"}};
  return std::ranges::max_element(parts, {}, [](const auto& part) { return part.first; })->second;
}

std::string EstimateItem::place() const {
  return nvme ? "NVMe" : host ? "host" : "device " + std::to_string(device);
}

std::string Estimate::to_text() const {
  std::string text;
  char line[160];
  for (const EstimateItem& item : items) {
    std::snprintf(line, sizeof line, "  %-10s %-28s %10.1f MiB\n", item.place().c_str(), item.name.c_str(),
                  double(item.bytes) / 0x1p20);
    text += line;
  }
  for (size_t device = 0; device < device_peak_bytes.size(); ++device) {
    std::snprintf(line, sizeof line, "  device %-3zu %-28s %10.1f MiB\n", device, "peak",
                  double(device_peak_bytes[device]) / 0x1p20);
    text += line;
  }
  return text;
}

}  // namespace spillway::trainer
