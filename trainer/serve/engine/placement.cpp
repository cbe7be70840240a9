#include "trainer/serve/engine/placement.h"

#include "trainer/plan/parameters/parameter_table.h"
#include "trainer/plan/toml/plan_toml.h"
#include "trainer/serve/batching/block_pool.h"

namespace spillway::trainer::serve {
namespace {

uint32_t device_in(const DeviceMap& map, uint32_t layer) {
  const auto found = map.find(layer);
  return found == map.end() ? 0 : found->second;
}

// Of a block, on that device.
uint64_t cache_bytes(const Architecture& model, const DeviceMap& map, uint32_t device,
                     uint32_t number_bytes) {
  uint64_t layers = 0;
  for (uint32_t layer = model.has_decoder() ? model.layers : 0; layer < model.all_layers(); ++layer)
    layers += device_in(map, layer) == device;
  return layers * 2 * kBlockTokens * model.key_width() * number_bytes;
}

// The reciprocal of the number of blocks that there is room for; a device without room for its weights comes
// before all others, the one that lacks most first.
std::vector<double> needs_of(const Architecture& model, const ServedSizes& sizes, const DeviceMap& map) {
  std::vector<double> needs;
  for (uint32_t device = 0; device < sizes.rooms.size(); ++device) {
    double left = double(sizes.rooms[device]) - double(weight_bytes(model, map, device, sizes.number_bytes));
    if (device == 0)
      left -= double(sizes.sequences) * model.vocabulary * (sizeof(float) + sizes.number_bytes);
    const double block = double(cache_bytes(model, map, device, sizes.number_bytes));
    needs.push_back(left > block ? block / left : 1 + block - left);
  }
  return needs;
}

// The text as a plan's "devices": a word stands in quotation marks there.
std::optional<toml::table> parsed(const std::string& text, std::string* error) {
  const bool is_word = text.find_first_of("[{") != 0;
  auto document = parse_toml("devices = " + (is_word ? '"' + text + '"' : text), error, "--device-map");
  if (document && document->size() != 1) document.reset();
  if (!document)
    *error =
        "--device-map: '" + text + "' is no map, such as even, [0, 0, 1, 1] or {\"0\" = [0], \"1\" = [1]}";
  return document;
}

}  // namespace

uint64_t weight_bytes(const Architecture& model, const DeviceMap& map, uint32_t device,
                      uint32_t number_bytes) {
  uint64_t numbers = 0;
  for (const Parameter& parameter : parameter_table(model))
    if ((parameter.layer < 0 ? 0 : device_in(map, uint32_t(parameter.layer))) == device)
      numbers += parameter.elements();
  return numbers * number_bytes;
}

std::string layers_in_words(const Architecture& model, const DeviceMap& map, uint32_t device) {
  std::string text;
  uint32_t count = 0;
  for (uint32_t first = 0, end; first < model.all_layers(); first = end + 1) {
    for (end = first; end < model.all_layers() && device_in(map, end) == device;) ++end;
    if (end == first) continue;
    text += (text.empty() ? "" : ", ") + std::to_string(first);
    if (end - first > 1) text += " to " + std::to_string(end - 1);
    count += end - first;
  }
  return count == 0 ? "no layer" : (count == 1 ? "layer " : "layers ") + text;
}

std::optional<DeviceMap> served_map(const std::string& text, const Architecture& model,
                                    const ServedSizes& sizes, std::string* error) {
  const auto document = parsed(text, error);
  if (!document) return std::nullopt;
  StrictTable table(*document, "");
  Plan plan;
  DeviceSpread spread = DeviceSpread::kGiven;
  read_plan(table, model.all_layers(), &plan, {.spread = &spread, .decoder_layers = model.decoder_layers});
  *error = table.error();
  if (spread == DeviceSpread::kBalancedTime)
    *error = "--device-map: one device computes at a time, so there is no balanced_time: say balanced";
  if (!error->empty()) return std::nullopt;
  const auto devices = uint32_t(sizes.rooms.size());
  if (spread == DeviceSpread::kEven) return device_map_even(model, devices);
  if (spread == DeviceSpread::kBalanced)
    return device_map_balanced(model, devices,
                               [&](const DeviceMap& map) { return needs_of(model, sizes, map); });
  for (const auto& [layer, device] : plan.placement)
    if (device >= devices) {
      *error = "--device-map: layer " + std::to_string(layer) + " is on device " + std::to_string(device) +
               ", but there are only " + std::to_string(devices);
      return std::nullopt;
    }
  return plan.placement;
}

}  // namespace spillway::trainer::serve
