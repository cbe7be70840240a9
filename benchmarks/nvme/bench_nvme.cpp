// Bandwidth of the trainer's block store in a folder: bench_nvme [OPTION...] FOLDER [MEBIBYTES [SIZE...]]
// One line a size of its pieces, in bytes: the size, GB/s written, GB/s read. Each byte is written once
// before, so that the disk has its place. The memory is in huge pages, or with --small-pages in those of 4
// KiB. With --again the last size is measured anew, in the same places, for each line of the input.
#include <sys/mman.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <iostream>
#include <string>
#include <vector>

#include "trainer/residency/nvme/block_store.h"

namespace {

using spillway::trainer::BlockStore;
using Clock = std::chrono::steady_clock;

[[noreturn]] void fail(const std::string& text) {
  std::fprintf(stderr, "bench_nvme: %s\n", text.c_str());
  std::exit(1);
}

constexpr int kTimes = 3;
constexpr size_t kHugePage = 2 << 20;

class Bench {
 public:
  Bench(const std::string& folder, size_t bytes, int advice) : bytes_(bytes), advice_(advice) {
    std::string error;
    store_ = BlockStore::open(folder, &error);
    if (store_ == nullptr) fail(error);
    for (const std::string& remark : store_->remarks()) std::fprintf(stderr, "%s\n", remark.c_str());
  }

  void run(size_t size) {
    std::string error;
    const size_t count = bytes_ / size;
    if (!store_->reserve(count * size, &error)) fail(error);
    pieces_.clear();
    for (size_t i = 0; i < count; ++i) pieces_.push_back(store_->piece(size));
    make_buffers(size);
    write_all();  // places on the disk
    measure();
  }

  void measure() {
    const double written = seconds_of([this] { write_all(); }), read = seconds_of([this] { read_all(); });
    const size_t size = pieces_.front().bytes;
    const double gigabytes = kTimes * double(pieces_.size() * size) / 1e9;
    std::printf("%zu %.3f %.3f\n", size, gigabytes / written, gigabytes / read);
    std::fflush(stdout);
  }

 private:
  struct Buffer {
    std::byte* memory = nullptr;
    BlockStore::Transfer transfer;
  };

  // As many pieces at a time as fill the queue.
  void make_buffers(size_t size) {
    const size_t blocks = (size + spillway::trainer::kIoBlock - 1) / spillway::trainer::kIoBlock;
    buffers_ = std::vector<Buffer>(std::max<size_t>(1, spillway::trainer::kIoDepth / blocks));
    std::free(memory_);
    const size_t all = (buffers_.size() * size + kHugePage - 1) / kHugePage * kHugePage;
    memory_ = static_cast<std::byte*>(std::aligned_alloc(kHugePage, all));
    if (memory_ == nullptr) fail("no memory");
    ::madvise(memory_, all, advice_);
    std::memset(memory_, 0x5a, all);
    for (size_t i = 0; i < buffers_.size(); ++i) buffers_[i].memory = memory_ + i * size;
  }

  void wait(Buffer& buffer) {
    if (!store_->wait(&buffer.transfer)) fail(buffer.transfer.error());
  }

  template <typename Begin>
  void all(const Begin& begin) {
    for (size_t i = 0; i < pieces_.size(); ++i) {
      Buffer& buffer = buffers_[i % buffers_.size()];
      wait(buffer);
      begin(pieces_[i], buffer);
    }
    for (Buffer& buffer : buffers_) wait(buffer);
  }
  void write_all() {
    all([this](auto& piece, Buffer& buffer) { store_->write(&piece, buffer.memory, &buffer.transfer); });
  }
  void read_all() {
    all([this](auto& piece, Buffer& buffer) { store_->read(piece, buffer.memory, &buffer.transfer); });
  }

  template <typename Work>
  static double seconds_of(const Work& work) {
    const auto start = Clock::now();
    for (int i = 0; i < kTimes; ++i) work();
    return std::chrono::duration<double>(Clock::now() - start).count();
  }

  const size_t bytes_;
  const int advice_;
  std::unique_ptr<BlockStore> store_;
  std::vector<BlockStore::Piece> pieces_;
  std::vector<Buffer> buffers_;
  std::byte* memory_ = nullptr;
};

}  // namespace

int main(int count, char** words) {
  constexpr char kUsage[] = "bench_nvme [--small-pages] [--again] FOLDER [MEBIBYTES [SIZE...]]";
  std::vector<std::string> said(words + 1, words + count);
  const bool small = std::erase(said, "--small-pages") > 0, again = std::erase(said, "--again") > 0;
  if (said.empty()) fail(kUsage);
  const size_t mebibytes = said.size() > 1 ? std::stoull(said[1]) : 1024;
  Bench bench(said[0], mebibytes << 20, small ? MADV_NOHUGEPAGE : MADV_HUGEPAGE);
  if (said.size() <= 2) bench.run(spillway::trainer::kIoBlock);
  for (size_t i = 2; i < said.size(); ++i) bench.run(std::stoull(said[i]));
  for (std::string line; again && std::getline(std::cin, line);) bench.measure();
}
