#include "trainer/optimizer/tiles/tile_stream.h"

#include <algorithm>

#include "trainer/optimizer/device_key.h"
#include "trainer/optimizer/states/optimizer_states.h"

namespace spillway::trainer {
namespace {

bool is_staged(const at::Tensor& part, at::Device device) {
  return part.device() != device;
}

}  // namespace

TileStream::~TileStream() {
  try {
    settle();
    // NOLINTNEXTLINE(bugprone-empty-catch)
  } catch (const c10::Error&) {  // the device is gone, and with it its copies
  }
}

void TileStream::prepare(std::vector<Stop> schedule, uint32_t slots) {
  struct Need {
    at::Device device;
    uint64_t bytes = 0, tiles = 0;
  };
  std::map<int, Need> needs;
  for (const Stop& stop : schedule) {
    if (stop.staged_bytes == 0) continue;
    Need& need = needs.try_emplace(device_key(stop.device), Need{stop.device}).first->second;
    need.bytes = std::max(need.bytes, stop.staged_bytes);
    ++need.tiles;
  }
  schedule_ = std::move(schedule);
  std::erase_if(lanes_, [&](const auto& lane) { return !needs.contains(lane.first); });
  for (const auto& [key, need] : needs)
    make_slots(need.device, need.bytes, std::min<uint64_t>(slots, need.tiles));
}

// A device has slots or no lane: what fails in between leaves none.
void TileStream::make_slots(at::Device device, uint64_t bytes, uint64_t count) {
  const int key = device_key(device);
  const auto lane = lanes_.find(key);
  if (lane != lanes_.end() && lane->second.slots.size() == count &&
      uint64_t(lane->second.slots[0].bytes.numel()) == bytes)
    return;
  lanes_.erase(key);
  CopyStream& to_device = CopyStream::of(device, Direction::kToDevice);
  CopyStream& to_host = CopyStream::of(device, Direction::kToHost);
  std::vector<Slot> slots(count);
  for (Slot& slot : slots) {
    slot.bytes = at::empty({int64_t(bytes)}, at::device(device).dtype(at::kByte));
    slot.arrived = to_device.copied(), slot.computed = to_host.computed(), slot.stored = to_host.copied();
  }
  lanes_[key] = {.slots = std::move(slots),
                 .at_home = to_host.copied(),
                 .sent = 0,
                 .updated = 0,
                 .to_device = &to_device,
                 .to_host = &to_host};
}

// What is to be brought is what the device and its copies have written so far; and slots may be memory that
// the device still computes with.
void TileStream::begin() {
  coming_.clear(), going_.clear();
  fetched_ = 0;
  for (auto& [key, lane] : lanes_) {
    lane.sent = lane.updated = 0;
    lane.slots[0].computed = lane.to_device->computed(lane.slots[0].computed);
    lane.to_device->wait_for(lane.slots[0].computed);
    lane.to_device->wait_for(lane.at_home = lane.to_host->copied(lane.at_home));
  }
  fetch_ahead();
}

bool TileStream::can_fetch(const Stop& stop) const {
  if (!home_.is_ready(stop.key)) return false;
  if (stop.staged_bytes == 0) return coming_.empty();  // nothing is gained by an earlier look
  const Lane& lane = lanes_.at(device_key(stop.device));
  return lane.sent - lane.updated < lane.slots.size();
}

void TileStream::fetch_ahead() {
  while (fetched_ < schedule_.size() && can_fetch(schedule_[fetched_])) fetch();
}

void TileStream::fetch() {
  const Stop& stop = schedule_[fetched_++];
  Tile tile{.stop = &stop, .parts = home_.parts(stop.key), .here = {}, .slot = nullptr};
  if (stop.staged_bytes > 0) {
    stage(&tile, &lanes_.at(device_key(stop.device)));
  } else {
    for (const at::Tensor& part : tile.parts) tile.here.push_back(part);
  }
  coming_.push_back(std::move(tile));
}

void TileStream::stage(Tile* tile, Lane* lane) {
  Slot& slot = lane->slots[lane->sent++ % lane->slots.size()];
  tile->slot = &slot;
  lane->to_device->wait_for(slot.stored);  // of the tile that was there before
  uint64_t offset = 0;
  for (const at::Tensor& part : tile->parts) {
    if (!is_staged(part, tile->stop->device)) {
      tile->here.push_back(part);
      continue;
    }
    const at::Tensor here = view_at(slot.bytes, offset, part.scalar_type(), part.numel());
    offset += aligned(part.nbytes(), kPartAlignment);
    tile->here.push_back(here.view(part.sizes()));
    lane->to_device->copy(tile->here.back(), part);
  }
  slot.arrived = lane->to_device->copied(slot.arrived);
}

const std::vector<at::Tensor>& TileStream::next() {
  if (coming_.empty()) {
    if (!can_fetch(schedule_[fetched_])) release_all_but(0);
    fetch();
  }
  const Tile& tile = coming_.front();
  if (tile.slot != nullptr) compute_after(tile.slot->arrived, tile.stop->device);
  return tile.here;
}

void TileStream::updated() {
  Tile tile = std::move(coming_.front());
  coming_.pop_front();
  if (tile.slot != nullptr) send_back(tile);
  if (home_.is_released(tile.stop->key)) {
    going_.push_back(std::move(tile));
    release_all_but(going_.back().slot != nullptr ? kLeastUpdateSlots - 1 : 0);
  }
  fetch_ahead();
}

void TileStream::send_back(const Tile& tile) {
  Lane& lane = lanes_.at(device_key(tile.stop->device));
  ++lane.updated;
  Slot& slot = *tile.slot;
  slot.computed = lane.to_host->computed(slot.computed);
  lane.to_host->wait_for(slot.computed);
  for (size_t i = 0; i < tile.parts.size(); ++i)
    if (is_staged(tile.parts[i], tile.stop->device)) lane.to_host->copy(tile.parts[i], tile.here[i]);
  slot.stored = lane.to_host->copied(slot.stored);
}

void TileStream::release_all_but(size_t count) {
  while (going_.size() > count) {
    const Tile& tile = going_.front();
    if (tile.slot != nullptr) wait_on_host(tile.slot->stored);
    home_.release(tile.stop->key);
    going_.pop_front();
  }
}

// What is fetched from the host later comes behind what went there now.
void TileStream::end() {
  release_all_but(0);
  for (auto& [key, lane] : lanes_)
    lane.to_device->wait_for(lane.at_home = lane.to_host->copied(lane.at_home));
}

void TileStream::settle() {
  for (auto& [key, lane] : lanes_) {
    wait_on_host(lane.to_device->copied());
    wait_on_host(lane.to_host->copied());
  }
}

}  // namespace spillway::trainer
