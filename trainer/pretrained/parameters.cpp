#include "trainer/pretrained/parameters.h"

#include <cstring>

#include "trainer/checkpoint/tensor_item.h"
#include "trainer/pretrained/save.h"
#include "trainer/pretrained/weights.h"

namespace spillway::trainer {
namespace {

at::Tensor read_parameter(const Shards& weights, const Parameter& parameter) {
  at::Tensor values = at::empty(parameter.sizes, at::kFloat);
  read_floats(*find_weight(weights, parameter.name),
              {values.mutable_data_ptr<float>(), static_cast<size_t>(values.numel())});
  return values;
}

}  // namespace

std::unique_ptr<Shards> open_weights(const std::string& folder, const Model& model, std::string* error) {
  auto weights = Shards::open(folder, error);
  if (weights && !check_weights(*weights, model.table(), error)) weights.reset();
  return weights;
}

InitialValues initial_values_of(std::shared_ptr<const Shards> weights, const Model& model) {
  return {model.table().size(), [weights = std::move(weights), table = model.table()](size_t index) {
            return read_parameter(*weights, table[index]);
          }};
}

std::vector<at::Tensor> parameters_of(const Shards& weights, const Model& model) {
  std::vector<at::Tensor> all;
  all.reserve(model.table().size());
  for (const Parameter& parameter : model.table()) all.push_back(read_parameter(weights, parameter));
  return all;
}

bool save_parameters(const std::string& folder, const Model& model, const TextMarks& marks,
                     const InitialValues::Value& value, std::string* error) {
  std::vector<safetensors::Item> items;
  items.reserve(model.table().size());
  for (size_t i = 0; i < model.table().size(); ++i)
    items.push_back({model.table()[i].name, name_of(at::kFloat), model.table()[i].sizes,
                     [&value, i](std::span<std::byte> bytes) {
                       const at::Tensor host = value(i).detach().cpu().to(at::kFloat).contiguous();
                       std::memcpy(bytes.data(), host.const_data_ptr(), bytes.size());
                     }});
  return save_pretrained(folder, model.architecture(), marks, items, error);
}

}  // namespace spillway::trainer
