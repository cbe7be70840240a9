#include "trainer/plan/toml/plan_toml.h"

#include <charconv>

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

std::string devices_up_to_most() {
  return "device indices are numbers from 0 to " + std::to_string(kMostDevices - 1);
}

void read_device_list(StrictTable& table, const toml::array& list, uint32_t layers, DeviceMap* out) {
  if (list.size() > layers)
    return table.fail(list,
                      "'devices' names more layers than the model has (" + std::to_string(layers) + ")");
  DeviceMap read;
  for (uint32_t layer = 0; layer < list.size(); ++layer) {
    const auto device = list[layer].value_exact<int64_t>();
    if (!device || *device < 0 || *device >= kMostDevices)
      return table.fail(list[layer], "'devices' must list a device for each layer, and has none for layer " +
                                         std::to_string(layer) + ": " + devices_up_to_most());
    if (*device != 0) read[layer] = static_cast<uint32_t>(*device);
  }
  *out = std::move(read);
}

void read_place(StrictTable& table, const char* key, Place* out) {
  std::string name = name_of(*out);
  table.text(key, &name);
  if (const auto place = place_of(name)) return void(*out = *place);
  table.fail(
      *table.node(key),
      "'" + std::string(key) + "' must be \"device\", \"peer\", \"host\" or \"nvme\", not \"" + name + "\"");
}

// One of two names: whether it is the second.
void read_which(StrictTable& table, const char* key, const char* first, const char* second, bool* is_second) {
  std::string name = *is_second ? second : first;
  table.text(key, &name);
  *is_second = name == second;
  if (!*is_second && name != first)
    table.fail(*table.node(key), "'" + std::string(key) + "' must be \"" + first + "\" or \"" + second +
                                     "\", not \"" + name + "\"");
}

void read_offload_to(StrictTable& table, Place* out) {
  std::string name = name_of(*out);
  table.text("offload_to", &name);
  const auto place = place_of(name);
  if (place && *place != Place::kDevice)
    *out = *place;
  else
    table.fail(*table.node("offload_to"),
               "'offload_to' must be \"peer\", \"host\" or \"nvme\", not \"" + name + "\"");
}

std::optional<uint32_t> device_in(std::string_view text) {
  uint32_t device = kMostDevices;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), device);
  if (error != std::errc() || end != text.data() + text.size() || device >= kMostDevices) return std::nullopt;
  return device;
}

void read_peers(StrictTable& table, DeviceMap* out) {
  const toml::node* node = table.node("peers");
  if (node == nullptr) return;
  const toml::table* peers = node->as_table();
  if (peers == nullptr)
    return table.fail(*node, "'peers' must be a table of devices and the peer of each, such as {0 = 1}");
  DeviceMap read;
  for (const auto& [key, value] : *peers) {
    const auto device = device_in(key.str());
    if (!device)
      return table.fail(value,
                        "'peers' has a device \"" + std::string(key.str()) + "\": " + devices_up_to_most());
    const auto peer = value.value_exact<int64_t>();
    if (!peer || *peer < 0 || *peer >= kMostDevices || *peer == *device)
      return table.fail(value, "'peers' must give device " + std::to_string(*device) +
                                   " another device: " + devices_up_to_most());
    read[*device] = static_cast<uint32_t>(*peer);
  }
  *out = std::move(read);
}

// A device's layers, as transformers' device_map has them.
class DeviceTable {
 public:
  // Layers of a stack, and how many stacks there are, which are spread alike.
  DeviceTable(StrictTable& table, uint32_t layers, uint32_t stacks)
      : table_(table), layers_(layers), stacks_(stacks) {}

  void read(const toml::table& devices, DeviceMap* out) {
    for (const auto& [key, node] : devices)
      if (!read_device(key.str(), node)) return;
    for (uint32_t layer = 0; layer < layers_; ++layer)
      if (!device_of_.contains(layer))
        return table_.fail(devices, "'devices' names no device for layer " + std::to_string(layer));
    out->clear();
    for (const auto& [layer, device] : device_of_)
      for (uint32_t stack = 0; stack < stacks_ && device != 0; ++stack)
        (*out)[stack * layers_ + layer] = device;
  }

 private:
  bool fail(const toml::node& where, const std::string& what) {
    table_.fail(where, what);
    return false;
  }

  bool read_device(std::string_view key, const toml::node& node) {
    const std::optional<uint32_t> named = device_in(key);
    if (!named)
      return fail(node, "'devices' has a device \"" + std::string(key) + "\": " + devices_up_to_most());
    const uint32_t device = *named;
    const toml::array* list = node.as_array();
    if (list == nullptr)
      return fail(node, "'devices' must give device " + std::to_string(device) + " a list of layers");
    for (const toml::node& each : *list)
      if (!read_layer(each, device)) return false;
    return true;
  }

  bool read_layer(const toml::node& node, uint32_t device) {
    const auto layer = node.value_exact<int64_t>();
    const std::string here = " on device " + std::to_string(device);
    if (!layer || *layer < 0 || *layer >= layers_)
      return fail(node, "'devices' has a layer" + here +
                            " that the model does not have: they are from 0 to " +
                            std::to_string(layers_ - 1));
    const auto [found, is_new] = device_of_.try_emplace(static_cast<uint32_t>(*layer), device);
    if (is_new) return true;
    return fail(node, "'devices' has layer " + std::to_string(*layer) + " on device " +
                          std::to_string(found->second) + " and" + here);
  }

  StrictTable& table_;
  const uint32_t layers_, stacks_;
  DeviceMap device_of_;
};

void read_device_table(StrictTable& table, const toml::table& devices, uint32_t layers,
                       uint32_t decoder_layers, DeviceMap* out) {
  const uint32_t encoder = layers - decoder_layers;
  if (decoder_layers != 0 && decoder_layers != encoder)
    return table.fail(devices, "a table of 'devices' spreads encoder and decoder alike, which have " +
                                   std::to_string(encoder) + " and " + std::to_string(decoder_layers) +
                                   " layers: write a list with a device for each layer");
  DeviceTable(table, encoder, decoder_layers != 0 ? 2 : 1).read(devices, out);
}

void read_devices(StrictTable& table, uint32_t layers, uint32_t decoder_layers, DeviceMap* out,
                  DeviceSpread* spread) {
  const toml::node* node = table.node("devices");
  if (node == nullptr) return;
  if (spread != nullptr) *spread = DeviceSpread::kGiven;
  if (const toml::array* list = node->as_array()) return read_device_list(table, *list, layers, out);
  if (const toml::table* devices = node->as_table())
    return read_device_table(table, *devices, layers, decoder_layers, out);
  const std::string word = node->value_exact<std::string>().value_or("");
  if (word == "first") return out->clear();
  if (const auto named = spread_of(word); named && spread != nullptr) return void(*spread = *named);
  table.fail(*node, std::string("'devices' must be \"first\", ") +
                        (spread != nullptr ? "\"even\", \"balanced\", \"balanced_time\", " : "") +
                        "a list with a device for each layer, or a table of each device's layers");
}

}  // namespace

void read_plan(StrictTable& table, uint32_t layers, Plan* plan, const PlanChoices& choices) {
  bool* const automatic_micro_batch = choices.micro_batch;
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
  read_devices(table, layers, choices.decoder_layers, &plan->placement, choices.spread);
  read_place(table, "optimizer", &plan->optimizer);
  read_place(table, "parameters", &plan->parameters);
  read_place(table, "gradients", &plan->gradients);
  read_offload_to(table, &plan->offload_to);
  read_peers(table, &plan->peers);
  table.integer("pipeline", &plan->pipeline, 1, 1 << 20);
  read_which(table, "update", "at_commit", "just_in_time", &plan->just_in_time);
  table.integer("tiles", &plan->tiles, 1, 1 << 20);
  table.integer("update_slots", &plan->update_slots, kLeastUpdateSlots, 1 << 20);
  read_which(table, "update_on", "device", "host", &plan->update_on_host);
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
