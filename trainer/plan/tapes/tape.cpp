#include "trainer/plan/tapes/tape.h"

#include <algorithm>
#include <utility>

namespace spillway::trainer {

namespace {

uint64_t fresh_of(const Tape::Operator& op) {
  return op.fresh > 0 ? op.fresh : op.weights;
}

}  // namespace

const char* name_of(Kind kind) {
  constexpr const char* kNames[kKinds] = {
      "token ids and positions",     "attention's activations", "MLP's activations",
      "inputs of recomputed layers", "logits and loss",         "gradients of activations",
      "fresh gradients of weights",  "workspace of an operator"};
  return kNames[static_cast<size_t>(kind)];
}

void Memory::allocate(uint32_t number, Kind kind, uint64_t bytes) {
  Device& device = devices_[number];
  device.alive += bytes;
  device.now[static_cast<size_t>(kind)] += bytes;
  device.peak_of_piece = std::max(device.peak_of_piece, device.alive);
  if (device.alive <= device.peak) return;
  device.peak = device.alive;
  device.at_peak = device.now;
}

void Memory::free(uint32_t number, Kind kind, uint64_t bytes) {
  devices_[number].alive -= bytes;
  devices_[number].now[static_cast<size_t>(kind)] -= bytes;
}

void Memory::end_piece() {
  Piece& piece = pieces_.emplace_back();
  for (Device& device : devices_) {
    piece.peak.push_back(std::exchange(device.peak_of_piece, device.alive));
    piece.after.push_back(device.alive);
  }
}

void Memory::pass(uint32_t device, double operations, double bytes, double launches) {
  const double compute = operations / machine_.flops, moved = bytes / machine_.memory_bytes_per_second,
               launched = launches * machine_.launch_seconds;
  time_.operations += operations;
  launches_ += launches;
  devices_[device].busy += std::max({compute, moved, launched});
  if (compute >= std::max(moved, launched))
    time_.compute += compute;
  else
    (moved >= launched ? time_.memory : time_.launches) += std::max(moved, launched);
}

void Memory::cross(uint32_t device, double bytes) {
  const double seconds = bytes / machine_.peer_bytes_per_second + machine_.launch_seconds;
  time_.peer_link += seconds;
  devices_[device].busy += seconds;
  ++launches_;
}

Tape::Tape(Memory* memory, Mode mode) : memory_(*memory), mode_(mode) {
  constexpr size_t kOfALayer = 64;
  tensors_.reserve(kOfALayer), buffers_.reserve(kOfALayer), recorded_.reserve(kOfALayer);
}

Tape::~Tape() {
  for (const Recorded& recorded : recorded_) {
    for (const Tensor kept : recorded.op.keeps) drop(kept);
    memory_.free(recorded.device, recorded.kind, recorded.op.keeps_more);
  }
  for (Tensor tensor = 0; tensor < tensors_.size(); ++tensor)
    while (tensors_[tensor].holders > 0) drop(tensor);
  for (size_t buffer = 0; buffer < buffers_.size(); ++buffer)
    while (buffers_[buffer].readers > 0) release_buffer(buffer);
}

Tape::Tensor Tape::add(uint64_t bytes, bool counts) {
  Entry entry;
  entry.bytes = bytes, entry.device = device_, entry.holders = 1, entry.kind = kind_, entry.counts = counts;
  tensors_.push_back(entry);
  if (counts) memory_.allocate(device_, kind_, bytes);
  return static_cast<Tensor>(tensors_.size() - 1);
}

template <typename Tensors>
std::vector<Tape::Tensor> Tape::borrow(const Tape& from, const Tensors& tensors) {
  std::vector<Tensor> mine;
  mine.reserve(tensors.size());
  for (const Tensor tensor : tensors) {
    mine.push_back(add(from.bytes(tensor), false));
    tensors_.back().plain = from.tensors_[tensor].plain;
  }
  return mine;
}

Tape::Tensor Tape::weights(uint64_t bytes) {
  return add(bytes, false);
}

Tape::Tensor Tape::plain(uint64_t bytes) {
  const Tensor tensor = add(bytes, true);
  tensors_[tensor].plain = true;
  return tensor;
}

void Tape::drop(Tensor tensor) {
  Entry& entry = tensors_[tensor];
  if (--entry.holders == 0 && entry.counts) memory_.free(entry.device, entry.kind, entry.bytes);
}

void Tape::spend_forward(const Operator& op) {
  if (op.is_done) return;
  if (op.crosses) return memory_.cross(device_, double(op.output));
  uint64_t bytes = op.output + op.keeps_more + op.weights;
  for (const Tensor input : op.inputs) bytes += op.gathers ? op.output : tensors_[input].bytes;
  // The scratch of a product is the library's workspace; others write theirs and read it.
  if (op.operations == 0) bytes += 2 * op.scratch;
  memory_.pass(device_, op.operations, double(bytes), op.tiles);
}

void Tape::spend_backward(const Recorded& recorded) {
  const Operator& op = recorded.op;
  if (op.is_done) return;
  if (op.crosses) return memory_.cross(recorded.device, double(op.output));
  if (op.passes_gradient && op.weights == 0) return;
  if (op.is_product()) {
    spend_products(recorded);
  } else {
    uint64_t bytes = op.output + op.keeps_more + op.weights;
    for (const Tensor kept : op.keeps) bytes += tensors_[kept].bytes;
    for (const Tensor input : op.inputs) bytes += tensors_[input].bytes;
    if (op.operations == 0) bytes += 2 * op.backward_scratch;
    const double gradients = double(op.inputs.size()) + (op.weights ? 1 : 0);
    memory_.pass(recorded.device, 2 * op.operations, double(bytes), gradients * op.tiles);
  }
  if (op.sums_gradient) memory_.pass(recorded.device, 0, double(op.output), 1);
  if (op.backward_kernels > 0)
    memory_.pass(recorded.device, 0, double(op.backward_moves), op.backward_kernels);
  // Added to what was accumulated.
  if (op.weights) memory_.pass(recorded.device, 0, 3.0 * double(op.weights), op.tiles);
  if (op.vectors) memory_.pass(recorded.device, 0, 0, op.vectors);
}

// Of each operand by a product of its own, which reads the output's gradient and the other operand.
void Tape::spend_products(const Recorded& recorded) {
  const Operator& op = recorded.op;
  const auto product = [&](uint64_t other, uint64_t gradient) {
    memory_.pass(recorded.device, op.operations, double(op.output + other + gradient), op.tiles);
  };
  const uint64_t first = tensors_[op.inputs[0]].bytes;
  const uint64_t second = op.weights > 0 ? op.weights : tensors_[op.inputs[1]].bytes;
  product(second, first), product(first, second);
}

Tape::Tensor Tape::run(const Operator& op) {
  const Tensor output = add(op.output, true);
  spend_forward(op);
  Recorded recorded{op, output, device_, kind_};
  if (op.gradients_at_once && mode_ != Mode::kEvaluates) recorded.gradients = new_gradients(recorded, {});
  memory_.allocate(device_, Kind::kWorkspace, op.scratch);
  memory_.free(device_, Kind::kWorkspace, op.scratch);
  if (mode_ == Mode::kEvaluates) return output;
  if (op.keeps_output) recorded.op.keeps.push_back(output);
  for (const Tensor kept : recorded.op.keeps) hold(kept);
  memory_.allocate(device_, kind_, op.keeps_more);
  recorded_.push_back(std::move(recorded));
  return output;
}

template <typename Tensors>
Few<Tape::Tensor> Tape::with_gradient(const Tensors& tensors) const {
  Few<Tensor> with;
  for (const Tensor tensor : tensors)
    if (!tensors_[tensor].plain) with.push_back(tensor);
  return with;
}

Tape::Tensor Tape::to(uint32_t device, Tensor tensor) {
  if (tensors_[tensor].device == device) {
    hold(tensor);
    return tensor;
  }
  const uint32_t here = std::exchange(device_, device);
  const bool plain = tensors_[tensor].plain;
  const Tensor copy =
      run({.inputs = with_gradient(Few<Tensor>{tensor}), .output = tensors_[tensor].bytes, .crosses = true});
  tensors_[copy].plain = plain;
  device_ = here;
  return copy;
}

Tape::Tensor Tape::run_again(const Layer& layer, const std::vector<Tensor>& inputs) {
  uint64_t output = 0;
  {
    Tape forward(&memory_, Mode::kTrains);
    forward.on(device_, kind_);
    output = forward.bytes(layer(&forward, forward.borrow(*this, inputs)));
  }
  // The output outlives the tape that made it, but is counted after it: it was not larger than what the tape
  // freed.
  const Kind within = std::exchange(kind_, Kind::kLayerInputs);
  const Tensor made =
      run({.inputs = with_gradient(inputs), .output = output, .keeps = Few<Tensor>(inputs), .is_done = true});
  kind_ = within;
  recorded_.back().again = layer;
  return made;
}

size_t Tape::new_buffer(uint32_t device, uint64_t bytes, bool counts) {
  buffers_.push_back({device, bytes, 1, counts});
  if (counts) memory_.allocate(device, Kind::kGradients, bytes);
  return buffers_.size() - 1;
}

void Tape::release_buffer(size_t number) {
  Buffer& buffer = buffers_[number];
  if (--buffer.readers == 0 && buffer.counts) memory_.free(buffer.device, Kind::kGradients, buffer.bytes);
}

// Takes over one reader of `buffer`.
void Tape::give(Tensor to, size_t buffer) {
  Entry& entry = tensors_[to];
  if (!entry.gradient) {
    entry.gradient = buffer;
    return;
  }
  const size_t before = *entry.gradient;
  memory_.pass(entry.device, 0, 3.0 * double(entry.bytes), 1);
  // Added in place, unless another reads the first one too.
  if (buffers_[before].readers > 1 || entry.shared) {
    entry.gradient = new_buffer(entry.device, entry.bytes);
    release_buffer(before);
  }
  release_buffer(buffer);
}

// Of the inputs, and of the weights.
Few<size_t> Tape::new_gradients(const Recorded& recorded, std::optional<size_t> of_output) {
  memory_.allocate(recorded.device, Kind::kWeightGradients, fresh_of(recorded.op));
  Few<size_t> made;
  for (const Tensor input : recorded.op.inputs) {
    const bool passes = recorded.op.passes_gradient && bytes(input) == bytes(recorded.output);
    if (of_output && passes) ++buffers_[*of_output].readers;
    made.push_back(of_output && passes ? *of_output : new_buffer(device_of(input), bytes(input)));
  }
  return made;
}

void Tape::undo(const Recorded& recorded) {
  const Operator& op = recorded.op;
  const std::optional<size_t> gradient = std::exchange(tensors_[recorded.output].gradient, std::nullopt);
  if (gradient && recorded.again) {
    undo_layer(recorded, *gradient);
  } else if (gradient) {
    spend_backward(recorded);
    memory_.allocate(recorded.device, Kind::kWorkspace, op.backward_scratch);
    const Few<size_t> made = op.gradients_at_once ? recorded.gradients : new_gradients(recorded, gradient);
    memory_.free(recorded.device, Kind::kWorkspace, op.backward_scratch);
    release_buffer(*gradient);
    for (size_t i = 0; i < made.size(); ++i) give(op.inputs[i], made[i]);
    memory_.free(recorded.device, Kind::kWeightGradients, fresh_of(op));
  }
  for (const Tensor kept : op.keeps) drop(kept);
  memory_.free(recorded.device, recorded.kind, op.keeps_more);
}

void Tape::undo_layer(const Recorded& recorded, size_t gradient) {
  {
    Tape again(&memory_, Mode::kTrains);
    again.on(recorded.device, Kind::kInputs);
    const Tensor output = recorded.again(&again, again.borrow(*this, recorded.op.keeps));
    again.tensors_[output].gradient = again.new_buffer(recorded.device, again.bytes(output), false);
    again.backward(output);
  }
  release_buffer(gradient);
  for (const Tensor input : recorded.op.inputs) give(input, new_buffer(device_of(input), bytes(input)));
}

void Tape::cut(std::vector<Tensor> passed) {
  for (const Tensor tensor : passed) hold(tensor);
  cuts_.push_back({recorded_.size(), std::move(passed)});
  memory_.end_piece();
}

void Tape::end_piece_of_backward() {
  for (const size_t gradient : undone_.gradients) release_buffer(gradient);
  for (const Tensor tensor : undone_.passed) drop(tensor);
  undone_ = {};
}

void Tape::backward_reaches_cut() {
  end_piece_of_backward();
  memory_.end_piece();
  undone_ = std::move(cuts_.back());
  cuts_.pop_back();
  for (const Tensor tensor : undone_.passed) {
    const std::optional<size_t> gradient = tensors_[tensor].gradient;
    if (!gradient) continue;
    ++buffers_[*gradient].readers;
    undone_.gradients.push_back(*gradient);
  }
}

void Tape::backward(Tensor last) {
  if (!tensors_[last].gradient) tensors_[last].gradient = new_buffer(device_of(last), bytes(last));
  while (!recorded_.empty()) {
    while (!cuts_.empty() && cuts_.back().recorded == recorded_.size()) backward_reaches_cut();
    backward_reaches_layer();
    const Recorded recorded = std::move(recorded_.back());
    recorded_.pop_back();
    undo(recorded);
    for (; !parts_.empty() && parts_.back() == recorded_.size(); parts_.pop_back()) memory_.leave_part();
  }
  end_piece_of_backward();
}

}  // namespace spillway::trainer
