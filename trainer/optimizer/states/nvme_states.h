// Records of the optimizer's states in a file on an NVMe disk, and the page-locked buffers that they pass
// through.
//
// An update takes the records one after the other, in a cycle: they are read ahead as far as there are
// buffers, also those of the next update while the model computes, and written behind. What fails is as
// RecordFile has it.
//
// Thread-safety: one thread. Ownership: owns file and buffers; borrows the records of the cycle. Errors:
// c10::OutOfMemoryError where the folder or the host has no room; RecordLost. Units: bytes.
#pragma once
#include <functional>

#include "trainer/residency/nvme/record_file.h"

namespace spillway::trainer {

class NvmeStates {
 public:
  explicit NvmeStates(std::string folder) : file_(std::move(folder), "the optimizer's states") {}
  ~NvmeStates();
  NvmeStates(const NvmeStates&) = delete;

  // Makes the file if there is none, with room for records of so many bytes in all.
  void reserve(uint64_t bytes) { file_.reserve(bytes); }
  BlockStore::Piece piece(uint64_t bytes) { return file_.piece(bytes); }  // of what was reserved
  // For records of at most `largest` bytes, on their way to and from `device`.
  void make_buffers(uint64_t largest, uint64_t count, at::Device device);
  // No record is left: gives back file and buffers.
  void close();
  std::vector<std::string> remarks() const { return file_.remarks(); }

  // Records one after the other, as many at a time as there are buffers. `fill` sets all bytes of the i-th;
  // `take` has them. A record that cannot be written is an OutOfMemoryError: it is still where it came from.
  using Bytes = std::function<void(size_t index, const at::Tensor& bytes)>;
  void write_all(std::vector<Record>& records, const Bytes& fill);
  void read_all(std::vector<Record>& records, const Bytes& take);

  // An update's records, in the order in which it takes them.
  void set_cycle(std::vector<Record*> records);
  // Begins to read as many as there are buffers. The other functions go on with it.
  void read_ahead();
  // Whether `next` has a buffer; otherwise `write_back` comes first.
  bool has_room() const { return taken_ - given_back_ < slots_.size(); }
  // The next one's bytes, for the update to change.
  at::Tensor next();
  // The first that was taken and not given back has its new bytes.
  void write_back();
  // Nothing is under way; what was written is in the file or kept. REQUIRES: as many were given back as
  // taken.
  void settle();

 private:
  enum class Stage : uint8_t { kFree, kComing, kTaken, kGoing };
  struct Slot : RecordBuffer {
    Stage stage = Stage::kFree;
  };

  Slot& slot_of(uint64_t number) { return slots_[number % slots_.size()]; }
  void end_write(Slot* slot);

  RecordFile file_;
  at::Device device_{at::kCPU};
  std::vector<Slot> slots_;
  std::vector<Record*> cycle_;
  uint64_t asked_ = 0, taken_ = 0, given_back_ = 0;  // records so far, of all cycles
};

}  // namespace spillway::trainer
