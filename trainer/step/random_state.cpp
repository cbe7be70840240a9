#include "trainer/step/random_state.h"

#include <ATen/Context.h>

#include <algorithm>
#include <cstring>

namespace spillway::trainer {
namespace {

at::Generator generator_of(at::Device device) {
  return at::globalContext().defaultGenerator(device);
}

at::Tensor state_of(at::Device device) {
  at::Generator generator = generator_of(device);
  const std::lock_guard<std::mutex> lock(generator.mutex());
  return generator.get_state();
}

void set_state(at::Device device, const at::Tensor& state) {
  at::Generator generator = generator_of(device);
  const std::lock_guard<std::mutex> lock(generator.mutex());
  generator.set_state(state);
}

void copy_state(at::Device from, at::Device to) {
  if (from != to) set_state(to, state_of(from));
}

// A GPU's state is a seed and the offset in its stream of numbers, of 64 bits each.
uint64_t offset_in(const at::Tensor& state) {
  uint64_t offset = 0;
  std::memcpy(&offset, state.const_data_ptr<uint8_t>() + sizeof offset, sizeof offset);
  return offset;
}

std::vector<at::Device> with_cpu(const std::vector<at::Device>& devices) {
  std::vector<at::Device> all{at::Device(at::kCPU)};
  for (const at::Device device : devices)
    if (device.is_cuda()) all.push_back(device);
  return all;
}

}  // namespace

RandomState RandomState::of(const std::vector<at::Device>& devices) {
  RandomState state;
  state.devices_ = with_cpu(devices);
  state.tensors_.reserve(state.devices_.size());
  for (const at::Device device : state.devices_) state.tensors_.push_back(state_of(device));
  return state;
}

RandomState RandomState::from_tensors(std::vector<at::Tensor> tensors,
                                      const std::vector<at::Device>& devices) {
  RandomState state;
  state.devices_ = with_cpu(devices);
  state.devices_.resize(std::min(state.devices_.size(), tensors.size()), at::Device(at::kCPU));
  state.tensors_ = std::move(tensors);
  return state;
}

RandomState RandomState::from_tensors(std::vector<at::Tensor> tensors, at::Device device) {
  return from_tensors(std::move(tensors), std::vector<at::Device>{device});
}

void RandomState::seed(const std::vector<at::Device>& devices, uint64_t seed) {
  for (const at::Device device : with_cpu(devices)) {
    at::Generator generator = generator_of(device);
    const std::lock_guard<std::mutex> lock(generator.mutex());
    generator.set_current_seed(seed);
  }
}

void RandomState::restore() const {
  for (size_t i = 0; i < devices_.size(); ++i) set_state(devices_[i], tensors_[i]);
}

const at::Tensor& RandomState::of_device(at::Device device) const {
  const auto found = std::ranges::find(devices_, device);
  TORCH_CHECK(found != devices_.end(), "no random state of ", device);
  return tensors_[static_cast<size_t>(found - devices_.begin())];
}

bool RandomState::draws_as(const RandomState& other, at::Device device) const {
  return at::equal(of_device(device), other.of_device(device));
}

std::optional<uint64_t> RandomState::distance_from(const RandomState& earlier, at::Device device) const {
  if (!device.is_cuda()) return std::nullopt;
  return offset_in(of_device(device)) - offset_in(earlier.of_device(device));
}

RandomState RandomState::further(at::Device device, uint64_t distance) const {
  RandomState state = *this;
  const auto index = static_cast<size_t>(&of_device(device) - tensors_.data());
  state.tensors_[index] = tensors_[index].clone();
  const uint64_t offset = offset_in(tensors_[index]) + distance;
  std::memcpy(state.tensors_[index].mutable_data_ptr<uint8_t>() + sizeof offset, &offset, sizeof offset);
  return state;
}

BorrowedRandomState::BorrowedRandomState(at::Device home, at::Device device) : home_(home), device_(device) {
  copy_state(home_, device_);
}

BorrowedRandomState::~BorrowedRandomState() {
  copy_state(device_, home_);
}

RandomStateGuard::RandomStateGuard(const RandomState& state) : present_(RandomState::of(state.devices())) {
  state.restore();
}

}  // namespace spillway::trainer
