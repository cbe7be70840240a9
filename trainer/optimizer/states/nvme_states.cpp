#include "trainer/optimizer/states/nvme_states.h"

namespace spillway::trainer {

NvmeStates::~NvmeStates() {
  file_.close();  // waits for what is under way, before its memory goes
}

void NvmeStates::make_buffers(uint64_t largest, uint64_t count, at::Device device) {
  if (slots_.size() == count && count > 0 && uint64_t(slots_[0].memory.numel()) == largest &&
      device == device_)
    return;
  settle();
  device_ = device;
  slots_.clear();
  if (count > 0) {
    const at::Tensor all = RecordFile::new_buffer(largest * count, device);
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
  file_.close();
}

void NvmeStates::write_all(std::vector<Record>& records, const Bytes& fill) {
  settle();
  for (size_t i = 0; i < records.size(); ++i) {
    Slot& slot = slot_of(i);
    if (i >= slots_.size()) file_.wait_for_new(&slot);
    fill(i, slot.memory.narrow(0, 0, int64_t(records[i].piece.bytes)));
    file_.write_new(&records[i], &slot);
  }
  for (size_t i = 0; i < std::min(slots_.size(), records.size()); ++i) file_.wait_for_new(&slots_[i]);
}

void NvmeStates::read_all(std::vector<Record>& records, const Bytes& take) {
  settle();
  const auto begin = [&](size_t i) {
    if (i >= records.size()) return;
    file_.begin_read(&slot_of(i), &records[i]);
    slot_of(i).stage = Stage::kComing;
  };
  for (size_t i = 0; i < slots_.size(); ++i) begin(i);
  for (size_t i = 0; i < records.size(); ++i) {
    Slot& slot = slot_of(i);
    file_.end_read(&slot);
    take(i, slot.memory.narrow(0, 0, int64_t(records[i].piece.bytes)));
    file_.drop(&slot);
    slot.stage = Stage::kFree;
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
  file_.end_read(&slot);
  slot.stage = Stage::kTaken;
  ++taken_;
  return slot.memory.narrow(0, 0, int64_t(slot.record->piece.bytes));
}

void NvmeStates::write_back() {
  Slot& slot = slot_of(given_back_++);
  file_.begin_write(&slot);
  slot.stage = Stage::kGoing;
  read_ahead();
}

// A buffer that is free again has the next record of the cycle: what was in it before is in the file by then.
void NvmeStates::read_ahead() {
  file_.poll();
  while (asked_ < taken_ + slots_.size()) {
    Slot& slot = slot_of(asked_);
    if (slot.stage == Stage::kGoing && !slot.transfer.is_under_way()) end_write(&slot);
    if (slot.stage != Stage::kFree) return;
    file_.begin_read(&slot, cycle_[asked_++ % cycle_.size()]);
    slot.stage = Stage::kComing;
  }
}

void NvmeStates::end_write(Slot* slot) {
  file_.end_write(slot, device_);
  slot->stage = Stage::kFree;
}

void NvmeStates::settle() {
  for (Slot& slot : slots_) {
    if (slot.stage == Stage::kGoing) end_write(&slot);
    if (slot.stage == Stage::kComing) file_.drop(&slot);  // it was read ahead and not taken
    slot.stage = Stage::kFree;
    file_.wait(&slot);
  }
  asked_ = taken_ = given_back_ = 0;
}

}  // namespace spillway::trainer
