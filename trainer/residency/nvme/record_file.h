// Records in a file on an NVMe disk, and the buffers of the host that they pass through.
//
// A record that cannot be written stays in memory: nothing is lost, `remarks` says so, and whoever writes it
// again tries the disk again. One that cannot be read is lost, which the error says.
//
// Thread-safety: one thread at a time. Ownership: owns the file; records and buffers are the caller's, and
// live as long as a transfer of theirs is under way. Errors: c10::OutOfMemoryError where the folder or the
// host has no room; RecordLost. Units: bytes.
#pragma once
#include <memory>
#include <stdexcept>

#include "trainer/libtorch.h"
#include "trainer/plan/parameters/tile_record.h"
#include "trainer/residency/nvme/block_store.h"

namespace spillway::trainer {

// Where what the plan puts on NVMe goes.
struct NvmeFolder {
  std::string path = ".";
  uint64_t least_bytes = kLeastOnNvme;  // of what goes there; less stays on the host
};

// A record cannot be read back.
struct RecordLost : std::runtime_error {
  using std::runtime_error::runtime_error;
};

struct Record {
  std::string name;  // for people, as in "the parameters of layer 3"
  BlockStore::Piece piece;
  at::Tensor kept;  // its bytes, where they could not be written
};

// One record at a time passes through it.
struct RecordBuffer {
  at::Tensor memory, spare;  // spare: its own memory, while it has that of a kept record
  BlockStore::Transfer transfer;
  Record* record = nullptr;
};

class RecordFile {
 public:
  // `contents`: for people, as in "the optimizer's states".
  RecordFile(std::string folder, std::string contents)
      : folder_(std::move(folder)), contents_(std::move(contents)) {}

  // Makes the file if there is none, with room for pieces of so many bytes in all beside those in use.
  void reserve(uint64_t bytes);
  BlockStore::Piece piece(uint64_t bytes);  // of what was reserved
  BlockStore::Piece reserved_piece(uint64_t bytes);
  void give_back(BlockStore::Piece piece);
  // No piece is in use, and nothing under way.
  void close() { store_.reset(), unused_.clear(); }
  // Takes what has ended, without waiting.
  void poll() {
    if (store_) store_->poll();
  }
  std::vector<std::string> remarks() const;

  // Memory for copies to and from `device`, page-locked where files can be read into such memory.
  static at::Tensor new_buffer(uint64_t bytes, at::Device device);
  // The same in the middle of work: slower memory rather than none.
  static at::Tensor another_buffer(uint64_t bytes, at::Device device);

  // A read begins with `begin_read`; `end_read` waits for it, and `drop` is for one that nobody wants any
  // more. A record that is kept is in the buffer at once.
  void begin_read(RecordBuffer* buffer, Record* record);
  void end_read(RecordBuffer* buffer);
  void drop(RecordBuffer* buffer);
  // `end_write` waits. False: the record keeps the memory, and `buffer` has other memory for `device`.
  void begin_write(RecordBuffer* buffer);
  bool end_write(RecordBuffer* buffer, at::Device device);

  // For records of which another copy is left. An error is an OutOfMemoryError: the disk has no room.
  void write_new(Record* record, RecordBuffer* buffer);
  void wait_for_new(RecordBuffer* buffer);
  // Until nothing is under way with it; whatever came of that.
  void wait(RecordBuffer* buffer) {
    if (buffer->transfer.is_under_way()) store_->wait(&buffer->transfer);
  }

 private:
  void note_failure(const std::string& error, uint64_t bytes);

  const std::string folder_, contents_;
  std::unique_ptr<BlockStore> store_;
  std::vector<BlockStore::Piece> unused_;  // that were given back
  std::vector<std::string> failures_;
};

}  // namespace spillway::trainer
