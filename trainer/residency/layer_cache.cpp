#include "trainer/residency/layer_cache.h"

#include <algorithm>
#include <stdexcept>

namespace spillway::trainer {
namespace {

at::Tensor beginning_of(const at::Tensor& memory, const LayerBlock& block) {
  return memory.narrow(0, 0, int64_t(block.bytes()));
}

// A home may give more, or lines that do not stand together.
at::Tensor bytes_at_home(const at::Tensor& given, const LayerBlock& block) {
  return given.dim() > 1 ? given : given.narrow(0, 0, int64_t(block.bytes()));
}

}  // namespace

LayerCache::LayerCache(at::Device device, uint32_t most_slots)
    : device_(device),
      most_slots_(most_slots),
      to_device_(CopyStream::of(device, Direction::kToDevice)),
      to_host_(CopyStream::of(device, Direction::kToHost)) {}

// The host's memory goes: no copy may still read or write it.
LayerCache::~LayerCache() {
  try {
    wait_for_copies();
    // NOLINTNEXTLINE(bugprone-empty-catch)
  } catch (const std::exception&) {  // the device is lost, and its copies with it
  }
}

void LayerCache::add(uint32_t layer, LayerBlock block, bool is_zero) {
  entries_.insert_or_assign(layer, Entry{std::move(block), is_zero});
}

void LayerCache::remove(uint32_t layer) {
  if (Slot* slot = slot_of(layer)) slot->layer.reset(), slot->changed = false;
  entries_.erase(layer);
  if (entries_.empty()) slots_.clear();
}

void LayerCache::reserve() {
  int64_t bytes = 0;
  for (const auto& [layer, entry] : entries_) bytes = std::max(bytes, int64_t(entry.block.bytes()));
  const size_t count = std::min<size_t>(most_slots_, entries_.size());
  if (slots_.size() == count && (count == 0 || slots_[0].memory.numel() == bytes)) return;
  synchronise();
  const int64_t before = slots_.empty() ? 0 : int64_t(slots_.size()) * slots_[0].memory.numel();
  if (int64_t(count) * bytes < before) slots_.clear();  // room for the smaller ones
  std::vector<Slot> slots(count);
  for (Slot& slot : slots) {
    slot.memory = at::empty({bytes}, at::device(device_).dtype(at::kByte));
    slot.in_doubt = true;  // kernels that had this memory before may not be done
  }
  slots_ = std::move(slots);
}

void LayerCache::wait_for_copies() const {
  wait_on_host(to_host_.copied());
  wait_on_host(to_device_.copied());
  for (const Slot& slot : slots_) wait_on_host(slot.filled), wait_on_host(slot.written);  // of ranks
}

LayerCache::Slot* LayerCache::slot_of(uint32_t layer) {
  const auto found = std::ranges::find(slots_, layer, &Slot::layer);
  return found == slots_.end() ? nullptr : &*found;
}

// One that nobody uses, best with a layer that does not come next, and of these the one whose use ended
// first: what leaves it has had most time, and the computation does not wait for that.
LayerCache::Slot* LayerCache::free_slot(uint32_t layer, const std::vector<uint32_t>& next) {
  Slot *found = nullptr, *coming = nullptr;
  for (Slot& slot : slots_) {
    if (slot.users > 0) continue;
    const bool comes =
        slot.layer && (slot.layer == layer || std::ranges::find(next, *slot.layer) != next.end());
    Slot*& best = comes ? coming : found;
    if (best == nullptr || slot.turn < best->turn) best = &slot;
  }
  return found != nullptr ? found : coming;
}

LayerCache::Entry& LayerCache::entry_of(const Slot& slot) {
  if (!slot.layer) throw std::logic_error("a slot without a layer");
  return entries_.at(*slot.layer);
}

CopyStream::Mark LayerCache::last_use(const Slot& slot) const {
  return slot.in_doubt ? to_device_.computed() : slot.used;
}

void LayerCache::write_back(Slot* slot) {
  const LayerBlock& block = entry_of(*slot).block;
  if (block.home().is_shared())
    throw std::logic_error("a layer that ranks share is to leave its slot within its use");
  const at::Tensor home = bytes_at_home(block.home().overwrite(&to_host_), block);
  to_host_.wait_for(last_use(*slot));
  to_host_.copy(home, beginning_of(slot->memory, block).view(home.sizes()));
  slot->written = to_host_.copied();
  block.home().written_by(slot->written);
  slot->changed = false;
}

// What ranks have together is zero again when it was added up.
void LayerCache::add_up(Slot* slot) {
  Entry& entry = entry_of(*slot);
  slot->written = entry.block.home().go(beginning_of(slot->memory, entry.block));
  entry.zero = true;
  slot->layer.reset(), slot->changed = false;
}

void LayerCache::fetch(Slot* slot, uint32_t layer) {
  if (slot->changed) write_back(slot);
  slot->layer.reset();
  bring(slot, entries_.at(layer).block);
  entries_.at(layer).fetched = slot->filled;
  slot->in_doubt = false;
  slot->layer = layer;
}

void LayerCache::bring(Slot* slot, const LayerBlock& block) {
  LayerHome& from = block.home();
  if (from.is_shared()) return void(slot->filled = from.come(beginning_of(slot->memory, block)));
  const at::Tensor home = bytes_at_home(from.read(&to_device_), block);
  to_device_.wait_for(last_use(*slot));
  to_device_.wait_for(slot->written);
  to_device_.copy(beginning_of(slot->memory, block).view(home.sizes()), home);
  slot->filled = to_device_.copied();
  from.read_until(slot->filled);
}

// Whatever is in its memory.
void LayerCache::take(Slot* slot, uint32_t layer) {
  if (slot->changed) write_back(slot);
  slot->layer.reset();
  compute_after(slot->written, device_);
  compute_after(slot->filled, device_);
  slot->layer = layer;
}

void LayerCache::clear(Slot* slot, uint32_t layer) {
  take(slot, layer);
  Entry& entry = entries_.at(layer);
  beginning_of(slot->memory, entry.block).zero_();
  slot->changed = true;
  entry.zero = false;
}

// It is not here, and there is something to bring.
bool LayerCache::may_come(uint32_t layer) {
  const Entry& entry = entries_.at(layer);
  return slot_of(layer) == nullptr && !entry.zero && !entry.stale && entry.block.home().has_bytes();
}

void LayerCache::fetch_next(std::optional<uint32_t> present) {
  const std::vector<uint32_t> next = order_.next(uint32_t(slots_.size()) - (present ? 1 : 0));
  for (const uint32_t layer : next) {
    if (!may_come(layer)) continue;
    Slot* slot = free_slot(present.value_or(layer), next);
    const bool comes = slot != nullptr && slot->layer && std::ranges::find(next, *slot->layer) != next.end();
    if (slot == nullptr || comes || !entries_.at(layer).block.home().is_ready()) break;
    fetch(slot, layer);
  }
  expect_next();
}

// Of the file, those that come to a slot next.
void LayerCache::expect_next() {
  if (file_ == nullptr) return;
  std::vector<uint32_t> records;
  for (const uint32_t layer : order_.next(reach_)) {
    if (!may_come(layer)) continue;
    const std::optional<uint32_t> record = record_of(layer);
    if (record && std::ranges::find(records, *record) == records.end()) records.push_back(*record);
  }
  file_->expect(records);
}

// Of as many records as there are buffers, each of as many layers in a row as share one.
uint32_t LayerCache::reach_of(const std::vector<uint32_t>& uses) const {
  uint32_t longest = 1, run = 0;
  std::optional<uint32_t> before;
  for (const uint32_t layer : uses) {
    const std::optional<uint32_t> record = record_of(layer);
    run = record && record == before ? run + 1 : 1;
    longest = std::max(longest, run);
    before = record;
  }
  return uint32_t(slots_.size()) + kLayerBuffers * longest;
}

void LayerCache::follow(std::vector<uint32_t> uses) {
  const at::NoGradGuard no_grad;
  std::erase_if(uses, [this](uint32_t layer) { return !entries_.contains(layer); });
  reach_ = file_ == nullptr ? 0 : reach_of(uses);
  const bool is_shared = !entries_.empty() && entries_.begin()->second.block.home().is_shared();
  order_ = UseOrder(std::move(uses), !is_shared);
  fetch_next(std::nullopt);
}

void LayerCache::begin(uint32_t layer, Use use) {
  const at::NoGradGuard no_grad;
  order_.move_to(layer);
  Slot* slot = slot_of(layer);
  if (slot == nullptr) {
    slot = free_slot(layer, order_.next(uint32_t(slots_.size())));
    TORCH_CHECK(slot != nullptr, "layer ", layer, " is used, and all ", slots_.size(),
                " slots for layers of ", device_, " are in use");
    const Entry& entry = entries_.at(layer);
    if (entry.zero)
      clear(slot, layer);
    else if (entry.stale && use == Use::kWrite)
      take(slot, layer);
    else
      fetch(slot, layer);
  }
  if (use == Use::kWrite) entries_.at(layer).stale = false;
  compute_after(slot->filled, device_);
  if (slot->users++ == 0) entries_.at(layer).block.attach(slot->memory.mutable_data_ptr());
  slot->changed |= use == Use::kWrite;
  fetch_next(layer);
}

void LayerCache::end(uint32_t layer, After after) {
  const at::NoGradGuard no_grad;
  Slot* slot = slot_of(layer);
  if (slot == nullptr || slot->users == 0) return;
  --slot->users;
  if (slot->users > 0) return;
  entries_.at(layer).block.detach();
  slot->turn = ++ended_;
  slot->in_doubt = true;
  slot->used = to_device_.computed();
  slot->in_doubt = false;
  if (after == After::kWorthless)
    give_up(slot);
  else if (after == After::kSpoilt)
    slot->layer.reset(), slot->changed = false;
  else if (slot->changed)
    entries_.at(layer).block.home().is_shared() ? add_up(slot) : write_back(slot);
  if (file_ != nullptr) fetch_next(layer);  // what was not there when the use began
}

// Zero stands for what nobody wants: it is not brought again.
void LayerCache::give_up(Slot* slot) {
  Entry& entry = entry_of(*slot);
  entry.zero = true;
  entry.block.home().discard();
  slot->layer.reset(), slot->changed = false;
}

void LayerCache::let_go() {
  for (Slot& slot : slots_) {
    if (slot.users == 0) continue;
    slot.users = 0, slot.in_doubt = true;
    if (slot.layer) entries_.at(*slot.layer).block.detach();
  }
}

void LayerCache::synchronise() {
  for (Slot& slot : slots_)
    if (slot.changed) write_back(&slot);
  wait_for_copies();
}

void LayerCache::forget() {
  for (Slot& slot : slots_) slot.layer.reset();
}

void LayerCache::turn() {
  for (Slot& slot : slots_) {
    if (slot.changed) write_back(&slot);
    slot.layer.reset();
  }
  to_device_.wait_for(to_host_.copied());
}

void LayerCache::move_to(uint32_t layer, std::shared_ptr<LayerHome> home) {
  const at::NoGradGuard no_grad;
  synchronise();
  Entry& entry = entries_.at(layer);
  if (!entry.zero) copy_home(entry.block.home(), *home);
  entry.block.move_to(std::move(home));
}

at::Tensor LayerCache::take_home(uint32_t layer) {
  Entry& entry = entries_.at(layer);
  if (Slot* slot = slot_of(layer)) {
    if (slot->changed) write_back(slot);
    slot->layer.reset();
  }
  wait_on_host(entry.fetched);
  const at::Tensor home = bytes_at_home(entry.block.home().read(nullptr), entry.block);
  if (entry.zero) home.zero_();
  entry.zero = entry.stale = false;
  return home;
}

void LayerCache::set_zero(uint32_t layer) {
  if (Slot* slot = slot_of(layer)) slot->layer.reset(), slot->changed = false;
  Entry& entry = entries_.at(layer);
  entry.zero = true, entry.stale = false;
  entry.block.home().discard();
}

}  // namespace spillway::trainer
