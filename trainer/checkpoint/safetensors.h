// Reading and writing safetensors files: 8 bytes of header length, a JSON header, the tensors' bytes.
//
// Reading trusts nothing: names, types, shapes and offsets are checked against each other and against the
// file's size; tensors must cover the data without a gap or an overlap, as the format demands. Writing is
// atomic: a reader sees the old file or the whole new one, also after a power cut (temporary file, fsync,
// rename, fsync of the folder).
//
// Thread-safety: a File is immutable. Ownership: a File owns its mapping; spans live as long as it. Errors:
// texts that name the file and what is wrong.
#pragma once
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace spillway::trainer::safetensors {

struct StoredTensor {
  std::string type;  // "F32", "U8", "I64", ...
  std::vector<int64_t> shape;
  std::span<const std::byte> data;
};

class File {
 public:
  static std::unique_ptr<File> open(const std::string& path, std::string* error);
  // The same checks on bytes in memory, which must outlive the result.
  static std::unique_ptr<File> parse(std::span<const std::byte> bytes, std::string* error);
  ~File();

  const std::map<std::string, StoredTensor>& tensors() const { return tensors_; }
  const std::map<std::string, std::string>& metadata() const { return metadata_; }

 private:
  File() = default;
  std::map<std::string, StoredTensor> tensors_;
  std::map<std::string, std::string> metadata_;
  void* mapping_ = nullptr;
  size_t mapped_bytes_ = 0;
};

// Of one element; 0: the format has no such type.
uint64_t bytes_of_type(const std::string& type);

struct Item {
  std::string name, type;
  std::vector<int64_t> shape;
  // Fills the tensor's bytes: called once, when they are due, so that no more than one tensor is on the host
  // at a time.
  std::function<void(std::span<std::byte>)> fill;
};

bool write(const std::string& path, const std::vector<Item>& items,
           const std::map<std::string, std::string>& metadata, std::string* error);

}  // namespace spillway::trainer::safetensors
