#include "trainer/residency/nvme/record_file.h"

#include <algorithm>

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

void RecordFile::reserve(uint64_t bytes) {
  std::string error;
  if (store_ == nullptr) store_ = BlockStore::open(folder_, &error);
  const bool has_room = store_ != nullptr && store_->reserve(bytes, &error);
  TORCH_CHECK_WITH(OutOfMemoryError, has_room, "out of memory: no room for ", contents_,
                   " on a disk: ", error, " (run.nvme names the folder)");
}

BlockStore::Piece RecordFile::piece(uint64_t bytes) {
  const auto found = std::ranges::find(unused_, bytes, &BlockStore::Piece::bytes);
  if (found == unused_.end()) return store_->piece(bytes);
  BlockStore::Piece piece = std::move(*found);
  unused_.erase(found);
  return piece;
}

BlockStore::Piece RecordFile::reserved_piece(uint64_t bytes) {
  if (std::ranges::find(unused_, bytes, &BlockStore::Piece::bytes) == unused_.end()) reserve(bytes);
  return piece(bytes);
}

void RecordFile::give_back(BlockStore::Piece piece) {
  unused_.push_back(std::move(piece));
}

std::vector<std::string> RecordFile::remarks() const {
  std::vector<std::string> remarks = store_ ? store_->remarks() : std::vector<std::string>{};
  remarks.insert(remarks.end(), failures_.begin(), failures_.end());
  return remarks;
}

void RecordFile::note_failure(const std::string& error, uint64_t bytes) {
  constexpr size_t kMost = 8;  // each is said once
  if (failures_.size() < kMost)
    failures_.push_back(contents_ + " stay in memory, because they cannot be written: " + error + " (" +
                        std::to_string(bytes) + " bytes; it is tried again each time)");
}

at::Tensor RecordFile::new_buffer(uint64_t bytes, at::Device device) {
  at::Tensor buffer = disk_tensor(bytes, device);
  return fits_files(buffer) ? buffer : plain_buffer(bytes);
}

at::Tensor RecordFile::another_buffer(uint64_t bytes, at::Device device) {
  try {
    return new_buffer(bytes, device);
  } catch (const c10::OutOfMemoryError&) {
    return plain_buffer(bytes);
  }
}

void RecordFile::begin_read(RecordBuffer* buffer, Record* record) {
  buffer->record = record;
  if (record->kept.defined()) {
    buffer->spare = std::exchange(buffer->memory, std::exchange(record->kept, {}));
    return;
  }
  store_->read(record->piece, bytes_of(buffer->memory), &buffer->transfer);
}

void RecordFile::end_read(RecordBuffer* buffer) {
  if (!buffer->spare.defined() && !store_->wait(&buffer->transfer))
    throw RecordLost(buffer->record->name + " are lost: " + buffer->transfer.error());
}

void RecordFile::drop(RecordBuffer* buffer) {
  if (buffer->spare.defined())
    buffer->record->kept = std::exchange(buffer->memory, std::exchange(buffer->spare, {}));
  else
    store_->wait(&buffer->transfer);  // whatever came of it: it will be read again
}

void RecordFile::begin_write(RecordBuffer* buffer) {
  store_->write(&buffer->record->piece, bytes_of(buffer->memory), &buffer->transfer);
}

bool RecordFile::end_write(RecordBuffer* buffer, at::Device device) {
  const bool written = store_->wait(&buffer->transfer);
  if (!written) {
    note_failure(buffer->transfer.error(), buffer->record->piece.bytes);
    buffer->record->kept = std::exchange(buffer->memory, {});
  }
  if (buffer->spare.defined()) buffer->memory = std::exchange(buffer->spare, {});
  if (!buffer->memory.defined())
    buffer->memory = another_buffer(uint64_t(buffer->record->kept.numel()), device);
  return written;
}

void RecordFile::write_new(Record* record, RecordBuffer* buffer) {
  record->kept.reset();
  buffer->record = record;
  begin_write(buffer);
}

void RecordFile::wait_for_new(RecordBuffer* buffer) {
  TORCH_CHECK_WITH(OutOfMemoryError, store_->wait(&buffer->transfer), "out of memory: ", contents_,
                   " cannot be written: ", buffer->transfer.error());
}

}  // namespace spillway::trainer
