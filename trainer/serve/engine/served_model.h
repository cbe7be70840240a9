// A model whose weights lie on one device, to make text from: config.json and weights of a folder as Hugging
// Face's transformers, or a training's `run.save`, leaves them.
//
// Thread-safety: immutable once open. Ownership: owns the weights. Errors: texts that name the file; while it
// computes LibTorch's exceptions.
#pragma once
#include <memory>
#include <optional>

#include "trainer/model/model.h"
#include "trainer/serve/forward/kv_cache.h"
#include "trainer/serve/forward/step_batch.h"

namespace spillway::trainer::serve {

struct ModelOptions {
  std::string folder;
  uint32_t context = 0;  // tokens; 0: the model's own
  at::Device device{at::kCPU};
  at::ScalarType type = at::kFloat;
};

class ServedModel {
 public:
  // Bytes of copies of keys, and of values, that a group of several sequences may read.
  static constexpr uint64_t kMostGathered = uint64_t{32} << 20;

  static std::unique_ptr<ServedModel> open(const ModelOptions& options, std::string* error);
  // Weights in host memory, in the order of the table.
  ServedModel(const Architecture& model, const std::vector<at::Tensor>& weights, at::Device device,
              at::ScalarType type);

  const Architecture& architecture() const { return model_.architecture(); }
  // Tokens that end a text; of a model in memory none.
  const std::vector<int64_t>& ends() const { return ends_; }
  at::TensorOptions options() const { return at::device(device_).dtype(type_); }
  KvCache make_cache(uint32_t blocks) const { return {architecture(), blocks, options()}; }

  // Rows of `segments`, in the order in which they are then: the head over all, and the logits of the last
  // tokens of those that reach their end, as floats on the host.
  Head head(std::vector<Segment>* segments, KvCache* cache, at::Tensor* last = nullptr) const;
  at::Tensor logits(std::vector<Segment>* segments, KvCache* cache) const;
  // Of a whole text [1, tokens], without a cache. REQUIRES: a decoder alone.
  Head head_of_text(const at::Tensor& tokens) const;

 private:
  explicit ServedModel(const Architecture& model, const ModelOptions& options)
      : model_(model), keys_(model), device_(options.device), type_(options.type) {}
  Forward forward() const { return {architecture(), keys_, weights_, plan_, false}; }

  const Model model_;
  const ParameterKeys keys_;
  const at::Device device_;
  const at::ScalarType type_;
  const Plan plan_{};
  std::vector<at::Tensor> weights_;
  std::vector<int64_t> ends_;
};

}  // namespace spillway::trainer::serve
