#include "spillway/trainer/plan/estimate.h"

#include <algorithm>
#include <cstdio>

#include "trainer/plan/optimizer_state.h"
#include "trainer/plan/parameter_table.h"
#include "trainer/plan/tapes/tapes.h"

namespace spillway::trainer {
namespace {

constexpr uint64_t kFloat = 4, kTokenId = 8;

Tape::Tensor logits_on(Tape* tape, const TapePass& pass) {
  switch (pass.model.family) {
    case Family::kGpt2:
      return gpt2_tape(tape, pass);
    case Family::kLlama:
      return llama_tape(tape, pass);
    case Family::kT5:
      return t5_tape(tape, pass);
  }
  return 0;
}

// A micro-batch's forward, loss and backward; or an evaluation's forward and losses.
Memory dry_run(const TapePass& pass) {
  Memory memory(pass.devices);
  Tape tape(&memory, pass.training ? Tape::Mode::kTrains : Tape::Mode::kEvaluates);
  tape.on(0, Kind::kInputs);
  const Architecture& model = pass.model;
  tape.plain(uint64_t{pass.rows} * model.row_tokens() * kTokenId);
  const Tape::Tensor logits = logits_on(&tape, pass);
  // The logarithms of the softmax are kept, and the targets as a list.
  const Tape::Tensor shares =
      tape.run({.inputs = {logits},
                .output = tape.bytes(logits),
                .keeps_output = true,
                .keeps_more = uint64_t{pass.rows} * model.target_tokens() * kTokenId});
  const Tape::Tensor loss = tape.run({.inputs = {shares}, .output = kFloat});
  tape.drop(logits);
  tape.drop(shares);
  if (pass.training) tape.backward(loss);
  return memory;
}

class Counter {
 public:
  Counter(const Shape& shape, const Plan& plan, const Machine& machine)
      : shape_(shape),
        model_(shape.model),
        plan_(plan),
        machine_(machine),
        devices_(std::max(1u, machine.devices)),
        micro_batch_(std::min(plan.micro_batch, std::max(1u, shape.batch))),
        table_(parameter_table(shape.model)) {
    out_.device_peak_bytes.resize(devices_);
    out_.evaluation_peak_bytes.resize(devices_);
  }

  Estimate count() {
    count_persistent();
    out_.evaluation_peak_bytes = out_.device_peak_bytes;
    const Memory step = dry_run({model_, plan_, micro_batch_, devices_, true, machine_.workspace_bytes});
    const Memory evaluation =
        dry_run({model_, plan_, plan_.evaluation_batch, devices_, false, machine_.workspace_bytes});
    for (uint32_t device = 0; device < devices_; ++device) {
      for (size_t kind = 0; kind < kKinds; ++kind)
        add(name_of(static_cast<Kind>(kind)), device, step.at_peak(device)[kind]);
      out_.evaluation_peak_bytes[device] += evaluation.peak(device);
    }
    out_.step_us = static_cast<uint64_t>(1e6 * seconds());
    return std::move(out_);
  }

 private:
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
    std::vector<uint64_t> elements(devices_), states(devices_);
    std::vector<std::vector<std::vector<int64_t>>> sizes(devices_);
    for (const Parameter& parameter : table_) {
      const uint32_t device = device_of(parameter.layer);
      elements[device] += parameter.elements();
      sizes[device].push_back(parameter.sizes);
      for (const StateTensor& state : optimizer_state(numerics, parameter.sizes))
        states[device] += state.bytes();
    }
    for (uint32_t device = 0; device < devices_; ++device) {
      add("parameters", device, elements[device] * numerics.weight_bytes());
      add("gradients", device, elements[device] * numerics.gradient_bytes());
      if (!on_host) add("optimizer state", device, states[device]);
      add("room to update in", device, update_scratch_bytes(numerics, sizes[device], on_host));
      states_ += states[device];
    }
    if (!on_host) return;
    out_.host_bytes = states_;
    out_.items.push_back({"optimizer state", 0, true, out_.host_bytes});
  }

  uint64_t tokens_of(int layer) const {
    const bool decodes = layer < 0 || model_.is_decoder_layer(uint32_t(layer));
    return uint64_t{shape_.batch} * (decodes ? model_.target_tokens() : model_.context);
  }

  // Two operations a weight and token in the forward, four in the backward, two more where it is done again.
  double seconds() const {
    double operations = 0, moved = 0;
    for (const Parameter& parameter : table_) {
      if (parameter.sizes.size() < 2) continue;
      const bool again = parameter.layer >= 0 && plan_.recompute.contains(uint32_t(parameter.layer));
      operations += (again ? 8.0 : 6.0) * double(parameter.elements()) * double(tokens_of(parameter.layer));
    }
    if (plan_.optimizer == Place::kHost) moved = 2.0 * double(states_);  // there and back
    return operations / machine_.flops + moved / machine_.host_bytes_per_second +
           crossing_bytes() / machine_.peer_bytes_per_second + launch_seconds();
  }

  // Between devices, forward and backward.
  double crossing_bytes() const {
    double bytes = 0;
    uint32_t before = 0;
    for (uint32_t layer = 0; layer < shape_.layers(); ++layer) {
      const uint32_t device = device_of(int(layer));
      if (device != before) bytes += 2.0 * double(tokens_of(int(layer))) * kFloat * model_.width;
      before = device;
    }
    return before == 0 ? bytes : bytes + 2.0 * double(tokens_of(-1)) * kFloat * model_.width;
  }

  double launch_seconds() const {
    constexpr double kLaunchSeconds = 5e-6, kLaunchesPerLayer = 60;
    const uint32_t micro_batches = (shape_.batch + micro_batch_ - 1) / micro_batch_;
    return micro_batches * shape_.layers() * kLaunchesPerLayer * kLaunchSeconds;
  }

  const Shape& shape_;
  const Architecture& model_;
  const Plan& plan_;
  const Machine& machine_;
  const uint32_t devices_, micro_batch_;
  const std::vector<Parameter> table_;
  uint64_t states_ = 0;  // bytes of what the optimizer keeps
  Estimate out_;
};

}  // namespace

Estimate estimate(const Shape& shape, const Plan& plan, const Machine& machine) {
  return Counter(shape, plan, machine).count();
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
