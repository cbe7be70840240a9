// A model whose layers lie on one device or on several, to make text from: config.json and weights of a
// folder as Hugging Face's transformers, or a training's `run.save`, leaves them.
//
// Thread-safety: immutable once open. Ownership: owns the weights. Errors: texts that name the file;
// NoRoomError that names the device; while it computes LibTorch's exceptions.
#pragma once
#include <functional>
#include <memory>
#include <optional>

#include "trainer/model/model.h"
#include "trainer/plan/device_map.h"
#include "trainer/serve/engine/no_room.h"
#include "trainer/serve/forward/kv_cache.h"
#include "trainer/serve/forward/step_batch.h"

namespace spillway::trainer::serve {

struct ModelOptions {
  std::string folder{};
  uint32_t context = 0;                       // tokens; 0: the model's own
  std::vector<at::Device> devices{at::kCPU};  // the first one has the embedding and the head
  // Where its layers lie, as places in `devices`; none: all on the first.
  std::function<DeviceMap(const Architecture&)> place{};
  at::ScalarType type = at::kFloat;
};

class ServedModel {
 public:
  // Bytes of copies of keys, and of values, that a group of several sequences may read.
  static constexpr uint64_t kMostGathered = uint64_t{32} << 20;

  static std::unique_ptr<ServedModel> open(const ModelOptions& options, std::string* error);
  // Weights in host memory, in the order of the table.
  ServedModel(const Architecture& model, const std::vector<at::Tensor>& weights, const ModelOptions& options);

  const Architecture& architecture() const { return model_.architecture(); }
  // Tokens that end a text; of a model in memory none.
  const std::vector<int64_t>& ends() const { return ends_; }
  at::ScalarType type() const { return type_; }
  // Those that have something of it, the first one with the embedding and the head.
  std::vector<at::Device> devices() const;
  const DeviceMap& map() const { return map_; }
  KvCache make_cache(uint32_t blocks) const;
  // Of a block of the cache: of keys and values of the device's layers.
  uint64_t block_bytes(at::Device device) const;

  // Rows of `segments`, in the order in which they are then: the head over all, and the logits of the last
  // tokens of those that reach their end, as floats on the host.
  Head head(std::vector<Segment>* segments, KvCache* cache, at::Tensor* last = nullptr) const;
  at::Tensor logits(std::vector<Segment>* segments, KvCache* cache) const;
  // Of a whole text [1, tokens], without a cache. REQUIRES: a decoder alone.
  Head head_of_text(const at::Tensor& tokens) const;

 private:
  ServedModel(const Architecture& model, const ModelOptions& options);
  Forward forward() const { return {architecture(), keys_, weights_, plan_, false}; }
  at::Device home() const { return devices_[0]; }
  at::Device device_of(int layer) const;  // -1: of what belongs to no layer
  std::span<const at::Device> devices_of_cache() const;
  void add(const Parameter& parameter, const at::Tensor& values);
  std::string no_room_for_weights(at::Device device) const;

  const Model model_;
  const ParameterKeys keys_;
  const std::vector<at::Device> devices_;
  const DeviceMap map_;
  const at::ScalarType type_;
  const Plan plan_{};
  std::vector<at::Device> of_layers_;
  std::vector<at::Tensor> weights_;
  std::vector<int64_t> ends_;
};

}  // namespace spillway::trainer::serve
