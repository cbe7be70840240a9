// Copies pages between a device and the page file, over two pieces of pinned host memory, so that a copy and
// a transfer overlap.
//
// Thread-safety: any thread, without the heap's lock, in the device's context; one thread at a time
// copies.
// Ownership: of the buffers. Errors: an errno value, 0 for none.
#pragma once
#include "allocator/tiers/file/file_buffers.h"
#include "allocator/tiers/moving/migration.h"

namespace spillway {

class FileCopies {
 public:
  FileCopies(HeapState& heap, Migration& migration) : heap_(heap), migration_(migration) {}

  // Sets `done` in each move whose pages the file has. They stay mapped.
  void write_all(std::vector<Move>& moves);
  int read(const Piece& piece);
  void end();

 private:
  int write(Move& move) SPILLWAY_REQUIRES(mutex_);

  HeapState& heap_;
  Migration& migration_;
  Mutex<LockOrder::kFileBuffers> mutex_;
  FileBuffers buffers_ SPILLWAY_GUARDED_BY(mutex_);
};

}  // namespace spillway
