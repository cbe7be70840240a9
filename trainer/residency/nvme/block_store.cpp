#include "trainer/residency/nvme/block_store.h"

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "trainer/residency/nvme/checksum.h"

namespace spillway::trainer {
std::unique_ptr<BlockStore> BlockStore::open(const std::string& folder, std::string* error) {
  auto file = BlockFile::make(folder, error);
  if (file == nullptr) return nullptr;
  std::string remark;
  auto queue = make_io_queue(kIoDepth, &remark);
  return std::unique_ptr<BlockStore>(new BlockStore(std::move(file), std::move(queue), std::move(remark)));
}

// What is under way still uses the file and the callers' memory.
BlockStore::~BlockStore() {
  waiting_.clear();
  while (queue_->ended(true) != nullptr) {
  }
}

std::vector<std::string> BlockStore::remarks() const {
  std::vector<std::string> remarks;
  if (!remark_.empty()) remarks.push_back(remark_);
  if (!file_->is_direct())
    remarks.push_back("'" + folder() +
                      "' cannot be read and written beside the page cache, which then takes memory");
  return remarks;
}

bool BlockStore::reserve(uint64_t bytes, std::string* error) {
  return file_->reserve(given_out_ + bytes, error);
}

BlockStore::Piece BlockStore::piece(size_t bytes) {
  Piece made{.offset = given_out_, .bytes = bytes, .checksums = {}};
  made.checksums.resize((bytes + kIoBlock - 1) / kIoBlock);
  given_out_ += bytes;
  return made;
}

void BlockStore::write(Piece* piece, const std::byte* from, Transfer* transfer) {
  for (size_t i = 0; i < piece->checksums.size(); ++i)
    piece->checksums[i] =
        block_checksum(from + i * kIoBlock, std::min(kIoBlock, piece->bytes - i * kIoBlock));
  begin(*piece, const_cast<std::byte*>(from), true, transfer);  // it is only read
}

void BlockStore::read(const Piece& piece, std::byte* to, Transfer* transfer) {
  begin(piece, to, false, transfer);
}

void BlockStore::begin(const Piece& piece, std::byte* data, bool writes, Transfer* transfer) {
  transfer->error_.clear();
  transfer->blocks_.resize(piece.checksums.size());
  transfer->blocks_left_ = transfer->blocks_.size();
  for (size_t i = 0; i < transfer->blocks_.size(); ++i) {
    const size_t begin = i * kIoBlock;
    Transfer::Block& block = transfer->blocks_[i];
    block = {.request = {.writes = writes, .file = file_->descriptor()},
             .of = transfer,
             .data = data + begin,
             .bytes = std::min(kIoBlock, piece.bytes - begin),
             .offset = piece.offset + begin,
             .checksum = piece.checksums[i]};
    waiting_.push_back(&block);
  }
  submit_waiting();
}

void BlockStore::submit_waiting() {
  while (under_way_ < kIoDepth && !waiting_.empty()) {
    Transfer::Block* block = waiting_.front();
    waiting_.pop_front();
    submit(block);
  }
}

// What it has not got yet.
void BlockStore::submit(Transfer::Block* block) {
  block->request.data = block->data + block->done;
  block->request.bytes = block->bytes - block->done;
  block->request.offset = block->offset + block->done;
  ++under_way_;
  queue_->submit(&block->request);
}

void BlockStore::poll() {
  while (IoRequest* request = queue_->ended(false)) take(request);
}

bool BlockStore::wait(Transfer* transfer) {
  while (transfer->is_under_way()) {
    if (IoRequest* request = queue_->ended(true)) {
      take(request);
      continue;
    }
    transfer->error_ = "the kernel gave no answer to a request of the file in '" + folder() + "'";
    transfer->blocks_left_ = 0;
  }
  return transfer->error().empty();
}

std::string BlockStore::fault_of(const Transfer::Block& block) const {
  const IoRequest& request = block.request;
  if (request.result < 0) return std::strerror(int(-request.result));
  if (request.result == 0)
    return request.writes ? "nothing was written" : "the file ends there: it was cut off";
  if (block.done < block.bytes)
    return "only " + std::to_string(request.result) + " of " + std::to_string(request.bytes) +
           " bytes were moved";
  if (request.writes || block_checksum(block.data, block.bytes) == block.checksum) return "";
  return "the bytes have another checksum than when they were written";
}

void BlockStore::take(IoRequest* request) {
  auto* block = reinterpret_cast<Transfer::Block*>(request);
  --under_way_;
  const size_t before = block->done;
  // Whole units of the disk alone: the next request begins at one.
  if (request->result > 0)
    block->done = std::min(block->bytes, before + size_t(request->result) / kIoAlignment * kIoAlignment);
  if (const std::string fault = fault_of(*block); fault.empty()) {
    end(block, "");
  } else if (block->done > before && block->done < block->bytes) {
    submit(block);
  } else {
    block->done = 0;
    ++block->attempts < kIoAttempts ? submit(block) : end(block, fault);
  }
  submit_waiting();
}

void BlockStore::end(Transfer::Block* block, const std::string& fault) {
  Transfer& transfer = *block->of;
  if (!fault.empty() && transfer.error_.empty())
    transfer.error_ = std::string(block->request.writes ? "a write" : "a read") + " of " +
                      std::to_string(block->bytes) + " bytes at " + std::to_string(block->offset) +
                      " of the file in '" + folder() + "': " + fault;
  --transfer.blocks_left_;
}

}  // namespace spillway::trainer
