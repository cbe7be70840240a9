// A file without a name: it is gone with the process, however that ends.
//
// Its space is reserved before it is used. It is read and written beside the page cache (O_DIRECT) where the
// file system can do that, so memory, sizes and offsets are multiples of kIoAlignment.
//
// Thread-safety: one thread. Ownership: owns the file. Errors: texts. Units: bytes.
#pragma once
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

namespace spillway::trainer {

inline constexpr size_t kIoAlignment = 4096;

class BlockFile {
 public:
  static std::unique_ptr<BlockFile> make(const std::string& folder, std::string* error);
  ~BlockFile();
  BlockFile(const BlockFile&) = delete;

  int descriptor() const { return descriptor_; }
  bool is_direct() const { return direct_; }
  const std::string& folder() const { return folder_; }
  // So that it has at least so many, each with its place on the disk.
  bool reserve(uint64_t bytes, std::string* error);

 private:
  BlockFile(std::string folder, int descriptor, bool direct)
      : folder_(std::move(folder)), descriptor_(descriptor), direct_(direct) {}
  int fill_with_zeros(uint64_t bytes) const;

  const std::string folder_;
  const int descriptor_;
  const bool direct_;
  uint64_t reserved_ = 0;
};

}  // namespace spillway::trainer
