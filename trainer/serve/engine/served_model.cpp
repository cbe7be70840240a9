#include "trainer/serve/engine/served_model.h"

#include "trainer/model/families.h"
#include "trainer/pretrained/hugging_face_config.h"
#include "trainer/pretrained/parameters.h"
#include "trainer/pretrained/weights.h"
#include "trainer/serve/engine/end_tokens.h"
#include "trainer/serve/forward/cached_forward.h"

namespace spillway::trainer::serve {

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
    served->weights_.push_back(values.to(served->options()));
  }
  served->ends_ = end_tokens(options.folder, architecture->vocabulary);
  return served;
}

ServedModel::ServedModel(const Architecture& model, const std::vector<at::Tensor>& weights, at::Device device,
                         at::ScalarType type)
    : model_(model), keys_(model), device_(device), type_(type) {
  for (const at::Tensor& values : weights) weights_.push_back(values.to(options()));
}

Head ServedModel::head(std::vector<Segment>* segments, KvCache* cache, at::Tensor* last) const {
  const at::NoGradGuard no_grad;
  const Architecture& model = architecture();
  const uint64_t token_bytes = uint64_t{model.key_width()} * c10::elementSize(type_);
  const StepBatch batch = step_batch(segments, device_, type_, kMostGathered / token_bytes);
  if (last) *last = batch.last;
  const Forward whole = forward();
  const CachedForward step{whole, batch, *cache};
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
  const at::Tensor on_device = tokens.to(device_);
  const Forward whole = forward();
  return (architecture().family == Family::kGpt2 ? gpt2_head(whole, on_device) : llama_head(whole, on_device))
      .finish();
}

}  // namespace spillway::trainer::serve
