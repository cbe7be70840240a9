#include "trainer/optimizer/states/nvme_states.h"

#include "trainer/plan/parameters/tile_record.h"
#include "trainer/residency/host_tensor.h"

namespace spillway::trainer {
namespace {

std::byte* bytes_of(const at::Tensor& memory) {
  return static_cast<std::byte*>(memory.mutable_data_ptr());
}

bool fits_files(const at::Tensor& memory) {
  return reinterpret_cast<uintptr_t>(memory.const_data_ptr()) % kIoAlignment == 0;
}

// Not page-locked.
at::Tensor plain_buffer(uint64_t bytes) {
  return disk_tensor(bytes, at::kCPU);
}

}  // namespace

NvmeStates::~NvmeStates() {
  store_.reset();  // waits for what is under way, before its memory goes
}

void NvmeStates::reserve(uint64_t bytes) {
  std::string error;
  if (store_ == nullptr) store_ = BlockStore::open(folder_, &error);
  const bool has_room = store_ != nullptr && store_->reserve(bytes, &error);
  TORCH_CHECK_WITH(OutOfMemoryError, has_room,
                   "out of memory: no room for the optimizer's states on a disk: ", error,
                   " (run.nvme names the folder)");
}

at::Tensor NvmeStates::new_buffer(uint64_t bytes) const {
  at::Tensor buffer = disk_tensor(bytes, device_);
  return fits_files(buffer) ? buffer : plain_buffer(bytes);
}

// In the middle of an update: slower memory rather than none.
at::Tensor NvmeStates::another_buffer(uint64_t bytes) const {
  try {
    return new_buffer(bytes);
  } catch (const c10::OutOfMemoryError&) {
    return plain_buffer(bytes);
  }
}

void NvmeStates::make_buffers(uint64_t largest, uint64_t count, at::Device device) {
  if (slots_.size() == count && count > 0 && uint64_t(slots_[0].memory.numel()) == largest &&
      device == device_)
    return;
  settle();
  device_ = device;
  slots_.clear();
  if (count > 0) {
    const at::Tensor all = new_buffer(largest * count);
    std::vector<Slot> made(count);
    for (uint64_t i = 0; i < count; ++i)
      made[i].memory = all.narrow(0, int64_t(i * largest), int64_t(largest));
    slots_ = std::move(made);
  }
  asked_ = taken_ = given_back_ = 0;
}

void NvmeStates::close() {
  settle();
  slots_.clear(), cycle_.clear();
  asked_ = taken_ = given_back_ = 0;
  store_.reset();
}

std::vector<std::string> NvmeStates::remarks() const {
  std::vector<std::string> remarks = store_ ? store_->remarks() : std::vector<std::string>{};
  remarks.insert(remarks.end(), failures_.begin(), failures_.end());
  return remarks;
}

void NvmeStates::note_failure(const std::string& error, uint64_t bytes) {
  const std::string remark =
      "states of the optimizer stay in memory, because they cannot be written: " + error + " (" +
      std::to_string(bytes) + " bytes; it is tried again at every update)";
  constexpr size_t kMost = 8;  // each is said once
  if (failures_.size() < kMost) failures_.push_back(remark);
}

void NvmeStates::write_all(std::vector<Record>& records, const Bytes& fill) {
  settle();
  const auto wait_for = [&](Slot& slot) {
    TORCH_CHECK_WITH(OutOfMemoryError, store_->wait(&slot.transfer),
                     "out of memory: the optimizer's states cannot be written: ", slot.transfer.error());
  };
  for (size_t i = 0; i < records.size(); ++i) {
    Slot& slot = slot_of(i);
    wait_for(slot);
    fill(i, slot.memory.narrow(0, 0, int64_t(records[i].piece.bytes)));
    records[i].kept.reset();
    store_->write(&records[i].piece, bytes_of(slot.memory), &slot.transfer);
  }
  for (Slot& slot : slots_) wait_for(slot);
}

void NvmeStates::read_all(const std::vector<Record>& records, const Bytes& take) {
  settle();
  const auto begin = [&](size_t i) {
    if (i < records.size() && !records[i].kept.defined())
      store_->read(records[i].piece, bytes_of(slot_of(i).memory), &slot_of(i).transfer);
  };
  for (size_t i = 0; i < slots_.size(); ++i) begin(i);
  for (size_t i = 0; i < records.size(); ++i) {
    Slot& slot = slot_of(i);
    const at::Tensor& kept = records[i].kept;
    if (!kept.defined() && !store_->wait(&slot.transfer))
      throw StatesLost(records[i].name + " are lost: " + slot.transfer.error());
    take(i, (kept.defined() ? kept : slot.memory).narrow(0, 0, int64_t(records[i].piece.bytes)));
    begin(i + slots_.size());
  }
}

void NvmeStates::set_cycle(std::vector<Record*> records) {
  if (records == cycle_) return;
  settle();
  cycle_ = std::move(records);
  asked_ = taken_ = given_back_ = 0;
}

at::Tensor NvmeStates::next() {
  Slot& slot = slot_of(taken_);
  if (slot.stage == Stage::kGoing) end_write(&slot);
  read_ahead();
  end_read(&slot);
  ++taken_;
  return slot.memory.narrow(0, 0, int64_t(slot.record->piece.bytes));
}

void NvmeStates::write_back() {
  Slot& slot = slot_of(given_back_++);
  store_->write(&slot.record->piece, bytes_of(slot.memory), &slot.transfer);
  slot.stage = Stage::kGoing;
  read_ahead();
}

// A buffer that is free again has the next record of the cycle: what was in it before is in the file by then.
void NvmeStates::read_ahead() {
  store_->poll();
  while (asked_ < taken_ + slots_.size()) {
    Slot& slot = slot_of(asked_);
    if (slot.stage == Stage::kGoing && !slot.transfer.is_under_way()) end_write(&slot);
    if (slot.stage != Stage::kFree) return;
    begin_read(&slot, cycle_[asked_++ % cycle_.size()]);
  }
}

void NvmeStates::begin_read(Slot* slot, Record* record) {
  slot->record = record;
  slot->stage = Stage::kComing;
  if (record->kept.defined()) {
    slot->spare = std::exchange(slot->memory, std::exchange(record->kept, {}));
    return;
  }
  store_->read(record->piece, bytes_of(slot->memory), &slot->transfer);
}

void NvmeStates::end_read(Slot* slot) {
  if (!slot->spare.defined() && !store_->wait(&slot->transfer))
    throw StatesLost(slot->record->name + " are lost: " + slot->transfer.error());
  slot->stage = Stage::kTaken;
}

void NvmeStates::end_write(Slot* slot) {
  const bool written = store_->wait(&slot->transfer);
  if (!written) {
    note_failure(slot->transfer.error(), slot->record->piece.bytes);
    slot->record->kept = std::exchange(slot->memory, {});
  }
  if (slot->spare.defined()) slot->memory = std::exchange(slot->spare, {});
  if (!slot->memory.defined()) slot->memory = another_buffer(uint64_t(slot->record->kept.numel()));
  slot->stage = Stage::kFree;
}

// It was read ahead and not taken.
void NvmeStates::drop(Slot* slot) {
  if (slot->spare.defined())
    slot->record->kept = std::exchange(slot->memory, std::exchange(slot->spare, {}));
  else
    store_->wait(&slot->transfer);  // whatever came of it: it will be read again
  slot->stage = Stage::kFree;
}

void NvmeStates::settle() {
  for (Slot& slot : slots_) {
    if (slot.stage == Stage::kGoing) end_write(&slot);
    if (slot.stage == Stage::kComing) drop(&slot);
    if (slot.stage == Stage::kTaken) slot.stage = Stage::kFree;
    if (slot.transfer.is_under_way()) store_->wait(&slot.transfer);
  }
  asked_ = taken_ = given_back_ = 0;
}

}  // namespace spillway::trainer
