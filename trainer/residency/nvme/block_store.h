// Pieces of a nameless file, written and read in blocks of 1 MiB, up to 64 of them at a time.
//
// A write keeps the checksum of each block in memory, and a read compares it. Short reads and writes go on
// where they ended. What fails is tried again; what goes on failing is an error of the transfer, which names
// the file, the bytes and the reason. The memory of a transfer that failed is untouched by a write, and has
// anything after a read.
//
// Thread-safety: one thread. Ownership: owns the file; pieces are the caller's, and so is the memory of
// transfers that are under way. Errors: texts. Units: bytes.
#pragma once
#include <deque>
#include <vector>

#include "trainer/residency/nvme/block_file.h"
#include "trainer/residency/nvme/io_queue.h"

namespace spillway::trainer {

inline constexpr size_t kIoBlock = 1 << 20;
inline constexpr uint32_t kIoDepth = 64;
// How often a block is tried that fails, or is read with another checksum.
inline constexpr uint32_t kIoAttempts = 3;

class BlockStore {
 public:
  struct Piece {
    uint64_t offset = 0;
    size_t bytes = 0;
    std::vector<uint64_t> checksums;  // of its blocks, as they were written last; 0 before
  };

  // One read or write of a piece. It stays where it is while it is under way.
  class Transfer {
   public:
    bool is_under_way() const { return blocks_left_ > 0; }
    const std::string& error() const { return error_; }

   private:
    friend class BlockStore;
    struct Block {
      IoRequest request;  // first: it is what the queue gives back
      Transfer* of = nullptr;
      std::byte* data = nullptr;
      size_t bytes = 0, done = 0;
      uint64_t offset = 0, checksum = 0;
      uint32_t attempts = 0;
    };
    std::vector<Block> blocks_;
    size_t blocks_left_ = 0;
    std::string error_;
  };

  // `folder` has to be there.
  static std::unique_ptr<BlockStore> open(const std::string& folder, std::string* error);
  ~BlockStore();
  BlockStore(const BlockStore&) = delete;

  const std::string& folder() const { return file_->folder(); }
  // What a person should know of how it reads and writes; nothing where it is as meant.
  std::vector<std::string> remarks() const;

  // Room for pieces of so many bytes in all, beyond those that there are.
  bool reserve(uint64_t bytes, std::string* error);
  // REQUIRES: a multiple of kIoAlignment that was reserved.
  Piece piece(size_t bytes);

  // REQUIRES: aligned memory of the piece's size; the transfer is not under way.
  void write(Piece* piece, const std::byte* from, Transfer* transfer);
  void read(const Piece& piece, std::byte* to, Transfer* transfer);
  // Takes what has ended, without waiting.
  void poll();
  // False: it failed, as `transfer->error()` says.
  bool wait(Transfer* transfer);

 private:
  BlockStore(std::unique_ptr<BlockFile> file, std::unique_ptr<IoQueue> queue, std::string remark)
      : file_(std::move(file)), queue_(std::move(queue)), remark_(std::move(remark)) {}
  void begin(const Piece& piece, std::byte* data, bool writes, Transfer* transfer);
  void submit(Transfer::Block* block);
  void submit_waiting();
  void take(IoRequest* request);
  // "" where the block has all its bytes, and the right ones.
  std::string fault_of(const Transfer::Block& block) const;
  void end(Transfer::Block* block, const std::string& fault);

  const std::unique_ptr<BlockFile> file_;
  const std::unique_ptr<IoQueue> queue_;
  const std::string remark_;
  uint64_t given_out_ = 0;
  uint32_t under_way_ = 0;                // blocks that the queue has
  std::deque<Transfer::Block*> waiting_;  // for the queue
};

}  // namespace spillway::trainer
