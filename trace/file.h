// A trace file being written: created, its space allocated, mapped; its rings lent to threads. It is made
// under a name of its own and stands at its path only when it is whole, so that who looks there sees whose it
// is.
//
// Thread-safety: acquire, release and drop may be called from any thread. Ownership: shared by the Trace and,
// for the moment of handing a ring back, by a thread that exits. A forked child that inherits a File never
// writes to it.
#pragma once
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "trace/layout.h"
#include "trace/ring.h"

namespace spillway::trace {

// What keeps a trace from being made at `path`, or "". Nothing is made.
std::string obstacle_at(const std::string& path);

class File {
 public:
  static std::shared_ptr<File> create(const std::string& path, const Shape& shape, std::string* error);
  File(std::string path, const Shape& shape, unsigned char* base);
  File(const File&) = delete;
  File& operator=(const File&) = delete;
  ~File();

  const Ring& rare_ring() const { return rings_[kRareRing]; }
  // A ring for the calling thread's own use, or null when all are taken.
  Ring* acquire() noexcept;
  void release(Ring* ring) noexcept;
  void drop() noexcept;

  uint64_t id() const { return id_; }  // unique in the process, never 0
  const std::string& path() const { return path_; }
  const Shape& shape() const { return shape_; }
  Header& header() const { return *reinterpret_cast<Header*>(base_); }
  unsigned char* side() const { return base_ + shape_.side_offset(); }

 private:
  static void close_at_exit(const std::shared_ptr<File>& file);
  bool ours() const noexcept;
  void mark_closed() noexcept;
  void publish_header();

  std::string path_;  // set once more when the file stands there
  const Shape shape_;
  unsigned char* const base_;
  const uint64_t id_;
  const int process_;
  std::vector<Ring> rings_;
};

}  // namespace spillway::trace
