#include "trainer/serve/engine/served_model.h"

#include <algorithm>
#include <cstdio>

#include "trainer/model/families.h"
#include "trainer/pretrained/hugging_face_config.h"
#include "trainer/pretrained/parameters.h"
#include "trainer/pretrained/weights.h"
#include "trainer/runtime/core.h"
#include "trainer/serve/engine/placement.h"
#include "trainer/serve/forward/cached_forward.h"

namespace spillway::trainer::serve {
namespace {

constexpr uint64_t kLeastOfADevice = 2 << 20;  // memory comes in pages

std::string in_mebibytes(uint64_t bytes) {
  char text[32];
  std::snprintf(text, sizeof text, "%.1f MiB", double(bytes) / 0x1p20);
  return text;
}

}  // namespace

std::unique_ptr<ServedModel> ServedModel::open(const ModelOptions& options, std::string* error) {
  const auto architecture = read_hugging_face_config(options.folder + "/config.json", options.context, error);
  if (!architecture) return nullptr;
  std::unique_ptr<ServedModel> served(new ServedModel(*architecture, options));
  const auto weights = open_weights(options.folder, served->model_, error);
  if (!weights) return nullptr;
  // One at a time: the host never holds all of them as floats.
  for (const Parameter& parameter : served->model_.table()) {
    at::Tensor values = at::empty(parameter.sizes, at::kFloat);
    read_floats(*find_weight(*weights, parameter.name),
                {values.mutable_data_ptr<float>(), static_cast<size_t>(values.numel())});
    served->add(parameter, values);
  }
  served->ends_ =
      text_marks_of(options.folder, architecture->vocabulary).end.value_or(std::vector<int64_t>());
  return served;
}

ServedModel::ServedModel(const Architecture& model, const ModelOptions& options)
    : model_(model),
      keys_(model),
      devices_(options.devices),
      map_(options.place ? options.place(model) : DeviceMap()),
      type_(options.type),
      of_layers_(model.all_layers(), devices_[0]) {
  for (const auto& [layer, device] : map_) of_layers_[layer] = devices_.at(device);
}

ServedModel::ServedModel(const Architecture& model, const std::vector<at::Tensor>& weights,
                         const ModelOptions& options)
    : ServedModel(model, options) {
  for (size_t i = 0; i < weights.size(); ++i) add(model_.table()[i], weights[i]);
}

at::Device ServedModel::device_of(int layer) const {
  return layer < 0 ? home() : of_layers_[size_t(layer)];
}

void ServedModel::add(const Parameter& parameter, const at::Tensor& values) {
  const at::Device device = device_of(parameter.layer);
  try {
    weights_.push_back(values.to(at::device(device).dtype(type_)));
  } catch (const c10::OutOfMemoryError&) {
    throw NoRoomError(no_room_for_weights(device));
  }
}

// Some are there: what the device could have for all of them is what others leave.
std::string ServedModel::no_room_for_weights(at::Device device) const {
  uint32_t place = 0;
  while (devices_[place] != device) ++place;
  const uint64_t needed = weight_bytes(architecture(), map_, place, uint32_t(c10::elementSize(type_)));
  std::string text = device.str() + " (" + layers_in_words(architecture(), map_, place) +
                     ") has no room for its weights, which need " + in_mebibytes(needed);
  spillway_memory memory;
  if (Core::get().query(device.index(), &memory)) {
    const uint64_t others = memory.context + memory.others,
                   room = memory.limit - std::min(memory.limit, others);
    text += "; of the " + in_mebibytes(memory.limit) + " that may be used there others have " +
            in_mebibytes(others) + ", so that " +
            in_mebibytes(std::max(needed - std::min(needed, room), kLeastOfADevice)) + " or more are missing";
  }
  return text + ": spread the layers over more devices (--devices, --device-map), or serve in bf16 (--dtype)";
}

std::vector<at::Device> ServedModel::devices() const {
  std::vector<at::Device> used{home()};
  for (const at::Device device : devices_)
    if (device != home() && std::ranges::find(of_layers_, device) != of_layers_.end()) used.push_back(device);
  return used;
}

std::span<const at::Device> ServedModel::devices_of_cache() const {
  return std::span(of_layers_).last(cached_layers(architecture()));
}

KvCache ServedModel::make_cache(uint32_t blocks) const {
  return {architecture(), blocks, devices_of_cache(), type_};
}

uint64_t ServedModel::block_bytes(at::Device device) const {
  return uint64_t(std::ranges::count(devices_of_cache(), device)) * bytes_of_block(architecture(), type_);
}

Head ServedModel::head(std::vector<Segment>* segments, KvCache* cache, at::Tensor* last) const {
  const at::NoGradGuard no_grad;
  const Architecture& model = architecture();
  const uint64_t token_bytes = uint64_t{model.key_width()} * c10::elementSize(type_);
  const StepBatch batch = step_batch(segments, home(), type_, kMostGathered / token_bytes);
  if (last) *last = batch.last;
  const Forward whole = forward();
  const DeviceBatches batches(batch);
  const CachedForward step{whole, batches, *cache};
  switch (model.family) {
    case Family::kGpt2:
      return gpt2_step(step);
    case Family::kLlama:
      return llama_step(step);
    case Family::kT5:
      return t5_step(step);
  }
  return {};
}

at::Tensor ServedModel::logits(std::vector<Segment>* segments, KvCache* cache) const {
  const at::NoGradGuard no_grad;
  at::Tensor last;
  Head all = head(segments, cache, &last);
  if (last.numel() == 0) return {};
  all.hidden = all.hidden.index_select(1, last).squeeze(0);
  return all.logits().to(at::kFloat).to(at::kCPU);
}

Head ServedModel::head_of_text(const at::Tensor& tokens) const {
  const at::NoGradGuard no_grad;
  const at::Tensor on_device = tokens.to(home());
  const Forward whole = forward();
  return (architecture().family == Family::kGpt2 ? gpt2_head(whole, on_device) : llama_head(whole, on_device))
      .finish();
}

}  // namespace spillway::trainer::serve
