#include "trainer/plan/estimate.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <utility>

#include "trainer/plan/parameters/optimizer_state.h"
#include "trainer/plan/parameters/parameter_table.h"
#include "trainer/plan/parameters/weight_storage.h"
#include "trainer/plan/tapes/tapes.h"

namespace spillway::trainer {
namespace {

TapeHead head_on(Tape* tape, const TapePass& pass) {
  switch (pass.model.family) {
    case Family::kGpt2:
      return gpt2_tape(tape, pass);
    case Family::kLlama:
      return llama_tape(tape, pass);
    case Family::kT5:
      return t5_tape(tape, pass);
  }
  return {};
}

// A micro-batch's forward, loss and backward; or an evaluation's forward and losses.
Memory dry_run(const TapePass& pass, const Machine& machine) {
  Memory memory(machine);
  Tape tape(&memory, pass.training ? Tape::Mode::kTrains : Tape::Mode::kEvaluates);
  tape.on(0, Kind::kInputs);
  const Architecture& model = pass.model;
  tape.plain(uint64_t{pass.rows} * model.row_tokens() * TapePass::kTokenId);
  const Tape::Tensor loss = loss_tape(&tape, pass, head_on(&tape, pass));
  if (pass.training) tape.backward(loss);
  return memory;
}

class Counter {
 public:
  Counter(const Shape& shape, const Plan& plan, const Machine& machine)
      : shape_(shape),
        model_(shape.model),
        plan_(plan),
        machine_(with_a_device(machine)),
        devices_(machine_.devices),
        micro_batch_(std::clamp(plan.micro_batch, 1u, std::max(1u, shape.batch))),
        table_(parameter_table(shape.model)) {
    out_.device_peak_bytes.resize(devices_);
    out_.evaluation_peak_bytes.resize(devices_);
  }

  Estimate count() {
    count_persistent();
    out_.evaluation_peak_bytes = out_.device_peak_bytes;
    const Memory step = dry_run(pass(micro_batch_, true), machine_);
    const std::vector<uint64_t> more = of_more_in_flight(step);
    const Memory evaluation = dry_run(pass(plan_.evaluation_batch, false), machine_);
    for (uint32_t device = 0; device < devices_; ++device) {
      for (size_t kind = 0; kind < kKinds; ++kind)
        add(name_of(static_cast<Kind>(kind)), device, step.at_peak(device)[kind]);
      add("other micro-batches under way", device, more[device]);
      out_.device_seconds.push_back(step.busy(device));
      out_.evaluation_peak_bytes[device] += evaluation.peak(device);
    }
    count_time(step);
    return std::move(out_);
  }

 private:
  static Machine with_a_device(Machine machine) {
    machine.devices = std::max(1u, machine.devices);
    return machine;
  }

  TapePass pass(uint32_t rows, bool training) const {
    return {model_, plan_, rows, devices_, training, machine_.workspace_bytes, shape_.numerics.precision};
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
    const bool on_host = plan_.optimizer == Place::kHost;
    std::vector<uint64_t> elements(devices_), stored(devices_), states(devices_);
    std::vector<std::vector<std::vector<int64_t>>> sizes(devices_);
    for (const Parameter& parameter : table_) {
      const uint32_t device = device_of(parameter.layer);
      elements[device] += parameter.elements();
      stored[device] += stored_bytes(numerics, parameter);
      sizes[device].push_back(parameter.sizes);
      for (const StateTensor& state : optimizer_state(numerics, parameter.sizes))
        states[device] += state.bytes();
    }
    for (uint32_t device = 0; device < devices_; ++device) {
      add("parameters", device, stored[device]);
      add("gradients", device, elements[device] * numerics.gradient_bytes());
      if (!on_host) add("optimizer state", device, states[device]);
      add("room to update in", device, update_scratch_bytes(numerics, sizes[device], on_host));
      states_ += states[device];
    }
    if (!on_host) return;
    out_.host_bytes = states_;
    out_.items.push_back({"optimizer state", 0, true, out_.host_bytes});
  }

  // What micro-batches hold that are under way beside one at its peak. They are a piece of the forward, or of
  // the backward, apart (trainer/step/pipeline.h), and the one in front is first in each slot. So what a
  // piece keeps is held by no more of them than there are pieces from there to the last and back, and the
  // last one's, the head's, by one. A tied head's gradient waits for that of the embedding.
  std::vector<uint64_t> of_more_in_flight(const Memory& step) const {
    std::vector<uint64_t> more(devices_), before(devices_);
    const uint32_t most = in_flight(plan_, shape_.batch), last = uint32_t(step.kept().size());
    for (uint32_t piece = 0; piece < last; ++piece) {
      const std::vector<uint64_t>& kept = step.kept()[piece];
      const uint32_t others = std::min(most, 2 * (last - piece)) - 1;
      for (uint32_t device = 0; device < devices_; ++device) {
        if (kept[device] > before[device]) more[device] += others * (kept[device] - before[device]);
        before[device] = kept[device];
      }
    }
    if (model_.tied_head && last > 0)
      more[0] +=
          (std::min(most, last) - 1) * uint64_t{model_.vocabulary} * model_.width * pass(1, true).number();
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
    if (left > 0) add_time(dry_run(pass(left, true), machine_).time(), 1, share);
    count_optimizer();
    out_.step_us = static_cast<uint64_t>(1e6 * out_.time.seconds());
  }

  void add_time(const StepTime& part, double times, double share) {
    out_.time.compute += times * share * part.compute;
    out_.time.memory += times * share * part.memory;
    out_.time.launches += times * share * part.launches;
    out_.time.peer_link += times * share * part.peer_link;
    out_.time.operations += times * part.operations;
  }

  // An update goes through a parameter in tiles, which a device's cache holds, or in one kernel: value,
  // gradient and states are read and written once. Before, the gradient is set to zero, and read for the
  // norm.
  void count_optimizer() {
    const Numerics& numerics = shape_.numerics;
    const double kernels =
        numerics.optimizer == OptimizerKind::kAdamW8bit && !numerics.rounds_stochastically() ? 3 : 10;
    const bool on_host = plan_.optimizer == Place::kHost;
    for (const Parameter& parameter : table_) {
      const double elements = double(parameter.elements());
      const double tiles = std::ceil(elements / double(tile_elements(numerics, parameter.sizes, on_host)));
      double states = 0, copies = 0;
      for (const StateTensor& state : optimizer_state(numerics, parameter.sizes))
        states += double(state.bytes()), copies += 2;
      const double bytes =
          2 * (double(stored_bytes(numerics, parameter)) + 2 * elements * numerics.gradient_bytes() + states);
      out_.time.optimizer +=
          std::max(bytes / machine_.memory_bytes_per_second, tiles * kernels * machine_.launch_seconds);
      if (on_host)  // there and back; each copy is waited for
        out_.time.host_link +=
            2 * states / machine_.host_bytes_per_second + tiles * copies * 2 * machine_.launch_seconds;
    }
  }

  const Shape& shape_;
  const Architecture& model_;
  const Plan& plan_;
  const Machine machine_;
  const uint32_t devices_, micro_batch_;
  const std::vector<Parameter> table_;
  uint64_t states_ = 0;  // bytes of what the optimizer keeps
  Estimate out_;
};

}  // namespace

uint32_t micro_batches(const Plan& plan, uint32_t batch) {
  const uint32_t rows = std::max(1u, batch), size = std::clamp(plan.micro_batch, 1u, rows);
  return (rows + size - 1) / size;
}

uint32_t in_flight(const Plan& plan, uint32_t batch) {
  return std::clamp(plan.pipeline, 1u, micro_batches(plan, batch));
}

Estimate estimate(const Shape& shape, const Plan& plan, const Machine& machine) {
  return Counter(shape, plan, machine).count();
}

const char* StepTime::limit() const {
  const std::pair<double, const char*> parts[] = {{compute, "compute"},     {memory, "device memory"},
                                                  {launches, "launches"},   {optimizer, "optimizer"},
                                                  {host_link, "host link"}, {peer_link, "peer link"}};
  return std::ranges::max_element(parts, {}, [](const auto& part) { return part.first; })->second;
}

std::string Estimate::to_text() const {
  std::string text;
  char line[160];
  for (const EstimateItem& item : items) {
    std::snprintf(line, sizeof line, "  %-10s %-28s %10.1f MiB\n",
                  item.host ? "host" : ("device " + std::to_string(item.device)).c_str(), item.name.c_str(),
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
