#include "trainer/plan/toml/plan_toml.h"

namespace spillway::trainer {
namespace {

constexpr uint32_t kMostDevices = 64;

void read_layer_list(StrictTable& table, const char* key, const toml::array& list, uint32_t layers,
                     std::set<uint32_t>* out) {
  std::set<uint32_t> read;
  for (const toml::node& node : list) {
    const auto layer = node.value_exact<int64_t>();
    if (!layer || *layer < 0 || *layer >= layers)
      return table.fail(
          node, "'" + std::string(key) + "' must list layers from 0 to " + std::to_string(layers - 1));
    read.insert(static_cast<uint32_t>(*layer));
  }
  *out = std::move(read);
}

void read_layers(StrictTable& table, const char* key, uint32_t layers, std::set<uint32_t>* out) {
  const toml::node* node = table.node(key);
  if (!node) return;
  if (const toml::array* list = node->as_array()) return read_layer_list(table, key, *list, layers, out);
  int64_t count = -1;
  if (const auto word = node->value_exact<std::string>())
    count = *word == "all" ? layers : *word == "none" ? 0 : -1;
  else
    count = node->value_exact<int64_t>().value_or(-1);
  if (count < 0 || count > layers)
    return table.fail(*node, "'" + std::string(key) +
                                 "' must be \"none\", \"all\", a number of layers up to " +
                                 std::to_string(layers) + ", or a list of layers");
  out->clear();
  for (uint32_t layer = 0; layer < count; ++layer) out->insert(layer);
}

void read_devices(StrictTable& table, uint32_t layers, std::map<uint32_t, uint32_t>* out) {
  const toml::array* list = table.array("devices");
  if (!list) return;
  if (list->size() > layers)
    return table.fail(*list,
                      "'devices' names more layers than the model has (" + std::to_string(layers) + ")");
  std::map<uint32_t, uint32_t> read;
  for (uint32_t layer = 0; layer < list->size(); ++layer) {
    const auto device = (*list)[layer].value_exact<int64_t>();
    if (!device || *device < 0 || *device >= kMostDevices)
      return table.fail((*list)[layer], "'devices' must list device indices from 0 on, one a layer");
    if (*device != 0) read[layer] = static_cast<uint32_t>(*device);
  }
  *out = std::move(read);
}

void read_place(StrictTable& table, const char* key, bool may_be_nvme, Place* out) {
  std::string name = name_of(*out);
  table.text(key, &name);
  const auto place = place_of(name);
  if (place && (may_be_nvme || *place != Place::kNvme)) {
    *out = *place;
    return;
  }
  table.fail(*table.node(key),
             "'" + std::string(key) + "' must be " +
                 (may_be_nvme ? "\"device\", \"host\" or \"nvme\"" : "\"device\" or \"host\"") + ", not \"" +
                 name + "\"");
}

}  // namespace

void read_plan(StrictTable& table, uint32_t layers, Plan* plan, bool* automatic_micro_batch) {
  const toml::node* micro_batch = table.node("micro_batch");
  if (automatic_micro_batch != nullptr && micro_batch != nullptr && micro_batch->is_string()) {
    *automatic_micro_batch = micro_batch->value_exact<std::string>() == "auto";
    if (!*automatic_micro_batch) table.fail(*micro_batch, "'plan.micro_batch' must be a number or \"auto\"");
  } else {
    table.integer("micro_batch", &plan->micro_batch, 1);
  }
  table.integer("evaluation_batch", &plan->evaluation_batch, 1);
  table.integer("head_chunks", &plan->head_chunks, 1, 1 << 20);
  read_layers(table, "recompute", layers, &plan->recompute);
  read_layers(table, "recompute_attention", layers, &plan->recompute_attention);
  read_layers(table, "recompute_mlp", layers, &plan->recompute_mlp);
  read_layers(table, "offload", layers, &plan->offload);
  table.integer("recompute_segment", &plan->recompute_segment, 1, 1 << 20);
  read_devices(table, layers, &plan->placement);
  read_place(table, "optimizer", true, &plan->optimizer);
  read_place(table, "parameters", false, &plan->parameters);
  read_place(table, "gradients", false, &plan->gradients);
}

std::optional<Plan> parse_plan(std::string_view toml_text, uint32_t layers, const Plan& defaults,
                               std::string* error) {
  const auto parsed = parse_toml(toml_text, error);
  if (!parsed) return std::nullopt;
  StrictTable table(*parsed, "");
  Plan plan = defaults;
  read_plan(table, layers, &plan);
  if (table.finish()) return plan;
  *error = table.error();
  return std::nullopt;
}

}  // namespace spillway::trainer
