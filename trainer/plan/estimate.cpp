// The counts, in floats per token (width C, heads H, vocabulary V), of what autograd keeps in
// trainer/model/gpt.cpp:
//
//   block   x (kept by layer_norm 1, shared with the residual)          C
//           layer_norm 1: output (kept by the qkv product), statistics  C + 2
//           qkv: three views of one tensor, kept by the attention       3C
//           attention: output and log-sum-exp                           C + H
//           x after the attention (kept by layer_norm 2)                C
//           layer_norm 2: output and statistics                         C + 2
//           first product of the MLP (kept by GELU)                     4C
//           GELU's output (kept by the second product)                  4C      sum 16C + H + 4
//   recomputed block: x alone                                           C
//   while a block's backward runs: gradients of GELU's output and input, and of its x   4C + 4C + C
//   head    last layer_norm: x, output, statistics                      2C + 2
//           logits, log-softmax, its gradient (the loss)                3V
//
// The block's sum is that of Korthikanti et al., "Reducing Activation Recomputation" (2022), without the
// score matrix (flash attention), without dropout masks, and in 4-byte floats. AdamW keeps two floats a
// parameter; the trainer accumulates gradients into one float a parameter, and frees each fresh gradient at
// once.
#include "spillway/trainer/plan/estimate.h"

#include <algorithm>
#include <cstdio>

namespace spillway::trainer {
namespace {

constexpr uint64_t kFloat = 4;
constexpr uint64_t kTokenId = 8;

class Counter {
 public:
  Counter(const Shape& shape, const Plan& plan, const Machine& machine)
      : shape_(shape),
        plan_(plan),
        devices_(std::max(1u, machine.devices)),
        micro_batch_(std::min(plan.micro_batch, std::max(1u, shape.batch))),
        tokens_(uint64_t{micro_batch_} * shape.context) {
    out_.device_peak_bytes.resize(devices_);
    out_.evaluation_peak_bytes.resize(devices_);
  }

  Estimate count(const Machine& machine) {
    count_persistent();
    for (uint32_t device = 0; device < devices_; ++device) {
      add("libraries' workspaces", device, machine.workspace_bytes);
      out_.evaluation_peak_bytes[device] = out_.device_peak_bytes[device];
    }
    count_activations();
    count_evaluation();
    out_.step_us = step_us(machine);
    return std::move(out_);
  }

 private:
  uint32_t device_of(uint32_t layer) const { return std::min(plan_.device_of(layer), devices_ - 1); }
  uint64_t width() const { return shape_.width; }

  void add(std::string name, uint32_t device, uint64_t bytes) {
    if (bytes == 0) return;
    out_.device_peak_bytes[device] += bytes;
    out_.items.push_back({std::move(name), device, false, bytes});
  }

  // Parameters, gradients and moments: alive all the time.
  void count_persistent() {
    std::vector<uint64_t> parameters(devices_);
    parameters[0] = shape_.parameters() - shape_.layers * shape_.layer_parameters();
    for (uint32_t layer = 0; layer < shape_.layers; ++layer)
      parameters[device_of(layer)] += shape_.layer_parameters();
    for (uint32_t device = 0; device < devices_; ++device) {
      add("parameters", device, parameters[device] * kFloat);
      add("gradients", device, parameters[device] * kFloat);
      if (plan_.optimizer == Place::kDevice) add("optimizer state", device, 2 * parameters[device] * kFloat);
      // Two tiles through which moments on the host pass; see trainer/optimizer/adamw.h.
      else if (parameters[device])
        add("optimizer tiles", device, 2 * std::min(shape_.largest_parameter(), kTile) * kFloat);
    }
    if (plan_.optimizer == Place::kHost) {
      out_.host_bytes = 2 * shape_.parameters() * kFloat;
      out_.items.push_back({"optimizer state", 0, true, out_.host_bytes});
    }
  }

  void count_activations() {
    const uint64_t kept = (16 * width() + shape_.heads + 4) * tokens_ * kFloat;
    const uint64_t input = width() * tokens_ * kFloat;
    std::vector<uint64_t> transient(devices_);
    for (uint32_t layer = 0; layer < shape_.layers; ++layer) {
      const bool again = plan_.recompute.count(layer) != 0;
      const uint32_t device = device_of(layer);
      add("activations of layer " + std::to_string(layer), device, again ? input : kept);
      transient[device] = std::max(transient[device], 9 * input + (again ? kept - input : 0));
    }
    const uint64_t loss = 3 * uint64_t{shape_.vocabulary} * tokens_ * kFloat;
    add("tokens and embeddings", 0, tokens_ * kTokenId + input);
    add("last norm", 0, (2 * width() + 2) * tokens_ * kFloat);
    // The loss's tensors are gone, but for the gradient of the last norm's output, when the blocks' backward
    // starts.
    const bool head_is_higher = loss >= transient[0];
    add(head_is_higher ? "logits and loss" : "backward of one layer", 0, std::max(loss, transient[0]));
    for (uint32_t device = 1; device < devices_; ++device)
      add("backward of one layer", device, transient[device]);
  }

  // Without autograd a block's tensors are freed as the next operator has them: x, qkv or the MLP's two, at
  // most 10C.
  void count_evaluation() {
    const uint64_t tokens = uint64_t{plan_.evaluation_batch} * shape_.context;
    const uint64_t block = 10 * width() * tokens * kFloat,
                   head = 3 * uint64_t{shape_.vocabulary} * tokens * kFloat;
    for (uint32_t device = 0; device < devices_; ++device)
      out_.evaluation_peak_bytes[device] += device == 0 ? std::max(block, head) : block;
  }

  uint64_t step_us(const Machine& machine) const {
    const double tokens = double(shape_.batch) * shape_.context;
    const double recomputed = shape_.layers ? double(plan_.recompute.size()) / shape_.layers : 0;
    double seconds = tokens * 2.0 * double(shape_.parameters()) * (3 + recomputed) / machine.flops;
    if (plan_.optimizer == Place::kHost)  // both moments there and back
      seconds += 4.0 * kFloat * double(shape_.parameters()) / machine.host_bytes_per_second;
    uint32_t crossings = shape_.layers ? (device_of(0) != 0) + (device_of(shape_.layers - 1) != 0) : 0;
    for (uint32_t layer = 1; layer < shape_.layers; ++layer)
      crossings += device_of(layer) != device_of(layer - 1);
    seconds += 2.0 * crossings * tokens * kFloat * width() / machine.peer_bytes_per_second;
    const uint32_t micro_batches = (shape_.batch + micro_batch_ - 1) / micro_batch_;
    constexpr double kLaunchSeconds = 5e-6, kLaunchesPerLayer = 60;
    return static_cast<uint64_t>(
        1e6 * (seconds + micro_batches * shape_.layers * kLaunchesPerLayer * kLaunchSeconds));
  }

  static constexpr uint64_t kTile = 1u << 18;
  const Shape& shape_;
  const Plan& plan_;
  const uint32_t devices_, micro_batch_;
  const uint64_t tokens_;
  Estimate out_;
};

}  // namespace

uint64_t Shape::layer_parameters() const {
  return 12ull * width * width + 13ull * width;  // four products with biases, two norms
}

uint64_t Shape::largest_parameter() const {
  return uint64_t{width} * std::max({4 * width, vocabulary, context});
}

uint64_t Shape::parameters() const {
  return layers * layer_parameters() + uint64_t{vocabulary} * width + uint64_t{context} * width +
         2ull * width;
}

Estimate estimate(const Shape& shape, const Plan& plan, const Machine& machine) {
  return Counter(shape, plan, machine).count(machine);
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
