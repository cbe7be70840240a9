#include "trainer/plan/plan.h"

#include <algorithm>

namespace spillway::trainer {
namespace {

// "0-3,5": runs of numbers, so that the text of a deep model stays short.
std::string runs_of(const std::set<uint32_t>& numbers) {
  std::string text;
  for (auto it = numbers.begin(); it != numbers.end();) {
    const uint32_t first = *it;
    uint32_t last = first;
    for (++it; it != numbers.end() && *it == last + 1; ++it) last = *it;
    if (!text.empty()) text += ',';
    text += std::to_string(first);
    if (last != first) text += '-' + std::to_string(last);
  }
  return text;
}

std::string list_of(const std::set<uint32_t>& layers) {
  std::string text;
  for (const uint32_t layer : layers) text += (text.empty() ? "" : ", ") + std::to_string(layer);
  return "[" + text + "]";
}

std::string table_of(const std::map<uint32_t, uint32_t>& peers) {
  std::string text;
  for (const auto& [device, peer] : peers)
    text += (text.empty() ? "\"" : ", \"") + std::to_string(device) + "\" = " + std::to_string(peer);
  return "{" + text + "}";
}

constexpr const char* kPlaces[] = {"device", "peer", "host", "nvme"};

}  // namespace

const char* name_of(Place place) {
  return kPlaces[static_cast<size_t>(place)];
}

std::optional<Place> place_of(std::string_view name) {
  for (size_t i = 0; i < std::size(kPlaces); ++i)
    if (name == kPlaces[i]) return static_cast<Place>(i);
  return std::nullopt;
}

uint32_t Plan::device_of(uint32_t layer) const {
  const auto it = placement.find(layer);
  return it == placement.end() ? 0 : it->second;
}

uint32_t Plan::peer_of(uint32_t device) const {
  const auto it = peers.find(device);
  return it == peers.end() ? device : it->second;
}

bool Plan::uses_peers() const {
  if (peers.empty()) return false;
  return optimizer == Place::kPeer || parameters == Place::kPeer || gradients == Place::kPeer ||
         (offload_to == Place::kPeer && !offload.empty());
}

bool Plan::recomputes(uint32_t layer, Part part) const {
  return recompute.contains(layer) ||
         (part == Part::kMlp ? recompute_mlp : recompute_attention).contains(layer);
}

bool Plan::offloads(uint32_t layer, uint32_t end, uint32_t layers) const {
  return end < layers && offload.contains(layer) && is_away(offload_to, device_of(layer));
}

uint32_t Plan::offloaded_until(uint32_t layer, uint32_t layers) const {
  const auto next = offload.upper_bound(layer);
  const uint32_t soonest = next != offload.end() ? *next : layer + 1;
  return std::min(std::max(soonest, last_with_room(layer, layers)), layers - 1);
}

// Layers count alike, and those that are partly computed again not at all.
uint32_t Plan::last_with_room(uint32_t layer, uint32_t layers) const {
  const auto is_here = [this, device = device_of(layer)](uint32_t of) { return device_of(of) == device; };
  const auto stays = [this](uint32_t of) {
    return !offload.contains(of) && !recompute.contains(of) && !recompute_attention.contains(of) &&
           !recompute_mlp.contains(of);
  };
  uint32_t room = 0, before = 0;  // layers that stay; layers that have left before this one
  for (uint32_t of = 0; of < layers; ++of)
    if (is_here(of)) room += stays(of) ? 1 : 0, before += of < layer && offload.contains(of) ? 1 : 0;
  uint32_t held = 0, last = layer;
  for (uint32_t of = 0; of < layers; ++of) {
    if (!is_here(of)) continue;
    held += stays(of) || offload.contains(of) ? 1 : 0;
    if (of > layer && held > room + before) break;
    if (of > layer) last = of;
  }
  return last;
}

uint32_t Plan::segment_end(uint32_t layer, uint32_t end) const {
  uint32_t next = layer + 1;
  if (!recompute.contains(layer)) return next;
  while (next < end && next - layer < recompute_segment && recompute.contains(next) &&
         device_of(next) == device_of(layer))
    ++next;
  return next;
}

std::string to_string(const Plan& plan) {
  std::string text = "micro_batch=" + std::to_string(plan.micro_batch) +
                     " evaluation_batch=" + std::to_string(plan.evaluation_batch);
  if (!plan.recompute.empty()) text += " recompute=" + runs_of(plan.recompute);
  if (plan.optimizer != Place::kDevice) text += std::string(" optimizer=") + name_of(plan.optimizer);
  std::map<uint32_t, std::set<uint32_t>> by_device;
  for (const auto& [layer, device] : plan.placement)
    if (device != 0) by_device[device].insert(layer);
  for (const auto& [device, layers] : by_device)
    text += " device" + std::to_string(device) + "=" + runs_of(layers);
  if (!plan.recompute_attention.empty()) text += " recompute_attention=" + runs_of(plan.recompute_attention);
  if (!plan.recompute_mlp.empty()) text += " recompute_mlp=" + runs_of(plan.recompute_mlp);
  if (plan.recompute_segment != 1) text += " recompute_segment=" + std::to_string(plan.recompute_segment);
  if (plan.head_chunks != 1) text += " head_chunks=" + std::to_string(plan.head_chunks);
  if (plan.parameters != Place::kDevice) text += std::string(" parameters=") + name_of(plan.parameters);
  if (plan.gradients != Place::kDevice) text += std::string(" gradients=") + name_of(plan.gradients);
  if (!plan.offload.empty()) text += " offload=" + runs_of(plan.offload);
  if (plan.pipeline != 1) text += " pipeline=" + std::to_string(plan.pipeline);
  if (plan.just_in_time) text += " update=just_in_time";
  if (plan.offload_to != Place::kHost) text += std::string(" offload_to=") + name_of(plan.offload_to);
  for (const auto& [device, peer] : plan.peers)
    text += " peer" + std::to_string(device) + "=" + std::to_string(peer);
  if (plan.tiles != 1) text += " tiles=" + std::to_string(plan.tiles);
  if (plan.update_slots != kLeastUpdateSlots) text += " update_slots=" + std::to_string(plan.update_slots);
  if (plan.update_on_host) text += " update_on=host";
  return text;
}

uint64_t hash(const Plan& plan) {
  uint64_t value = 0xcbf29ce484222325ull;
  for (const unsigned char c : to_string(plan)) value = (value ^ c) * 0x100000001b3ull;
  return value;
}

std::string to_toml(const Plan& plan) {
  std::string text = "micro_batch = " + std::to_string(plan.micro_batch) +
                     "\nevaluation_batch = " + std::to_string(plan.evaluation_batch) +
                     "\nrecompute = " + list_of(plan.recompute);
  const auto place = [](const char* key, Place of) {
    return std::string("\n") + key + " = \"" + name_of(of) + "\"";
  };
  text += place("optimizer", plan.optimizer) + "\ndevices = [";
  const Plan canonical = normalised(plan);
  const uint32_t named = canonical.placement.empty() ? 0 : canonical.placement.rbegin()->first + 1;
  const char* separator = "";
  for (uint32_t layer = 0; layer < named; ++layer)
    text += separator + std::to_string(canonical.device_of(layer)), separator = ", ";
  return text + "]\nrecompute_attention = " + list_of(plan.recompute_attention) +
         "\nrecompute_mlp = " + list_of(plan.recompute_mlp) +
         "\nrecompute_segment = " + std::to_string(plan.recompute_segment) +
         "\nhead_chunks = " + std::to_string(plan.head_chunks) + place("parameters", plan.parameters) +
         place("gradients", plan.gradients) + "\noffload = " + list_of(plan.offload) +
         "\npipeline = " + std::to_string(plan.pipeline) + "\nupdate = \"" +
         (plan.just_in_time ? "just_in_time" : "at_commit") + "\"" + place("offload_to", plan.offload_to) +
         "\npeers = " + table_of(plan.peers) + "\ntiles = " + std::to_string(plan.tiles) +
         "\nupdate_slots = " + std::to_string(plan.update_slots) + "\nupdate_on = \"" +
         (plan.update_on_host ? "host" : "device") + "\"\n";
}

Plan normalised(Plan plan) {
  std::erase_if(plan.placement, [](const auto& entry) { return entry.second == 0; });
  std::erase_if(plan.peers, [](const auto& entry) { return entry.first == entry.second; });
  if (plan.offload.empty()) plan.offload_to = Place::kHost;
  for (const uint32_t layer : plan.recompute)
    plan.recompute_attention.erase(layer), plan.recompute_mlp.erase(layer);
  const auto layers = static_cast<uint32_t>(plan.recompute.size());
  plan.recompute_segment = std::clamp(plan.recompute_segment, 1u, std::max(1u, layers));
  if (plan.streams()) plan.pipeline = 1;
  for (const Place place : {plan.parameters, plan.gradients, plan.optimizer})
    if (place < Place::kHost) plan.tiles = 1;
  plan.update_on_host = plan.updates_on_host();
  plan.update_slots = plan.slots_of_update();
  return plan;
}

Plan join(const Plan& a, const Plan& b) {
  Plan both = normalised(a);
  both.micro_batch = std::min(a.micro_batch, b.micro_batch);
  both.evaluation_batch = std::min(a.evaluation_batch, b.evaluation_batch);
  const Plan other = normalised(b);
  both.recompute.insert(b.recompute.begin(), b.recompute.end());
  both.recompute_attention.insert(b.recompute_attention.begin(), b.recompute_attention.end());
  both.recompute_mlp.insert(b.recompute_mlp.begin(), b.recompute_mlp.end());
  // Of one that takes nothing away the place says nothing.
  if (both.offload.empty()) both.offload_to = other.offload_to;
  if (!other.offload.empty()) both.offload_to = std::max(both.offload_to, other.offload_to);
  both.offload.insert(b.offload.begin(), b.offload.end());
  both.recompute_segment = std::max(both.recompute_segment, other.recompute_segment);
  both.optimizer = std::max(a.optimizer, b.optimizer);
  both.head_chunks = std::max(a.head_chunks, b.head_chunks);
  both.parameters = std::max(a.parameters, b.parameters);
  both.gradients = std::max(a.gradients, b.gradients);
  both.pipeline = std::min(a.pipeline, b.pipeline);
  both.just_in_time = a.just_in_time || b.just_in_time;
  both.tiles = std::max(both.tiles, other.tiles);
  both.update_on_host = both.update_on_host || other.update_on_host;
  both.update_slots = std::min(both.update_slots, other.update_slots);
  for (const auto& [layer, device] : b.placement) {
    if (device == 0) continue;
    uint32_t& highest = both.placement[layer];
    highest = std::max(highest, device);
  }
  for (const auto& [device, peer] : other.peers) {
    uint32_t& highest = both.peers[device];
    highest = std::max(highest, peer);
  }
  return normalised(both);
}

}  // namespace spillway::trainer
