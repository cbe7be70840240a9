#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "trainer/checkpoint/safetensors.h"

namespace spillway::trainer::safetensors {
namespace {

uint64_t bytes_of(const Item& item) {
  uint64_t bytes = item.type == "U8" ? 1 : item.type == "F32" ? 4 : 8;
  for (const int64_t size : item.shape) bytes *= static_cast<uint64_t>(size);
  return bytes;
}

std::string header_of(const std::vector<Item>& items, const std::map<std::string, std::string>& metadata) {
  nlohmann::json header = nlohmann::json::object();
  if (!metadata.empty()) header["__metadata__"] = metadata;
  uint64_t offset = 0;
  for (const Item& item : items) {
    const uint64_t end = offset + bytes_of(item);
    header[item.name] = {{"dtype", item.type}, {"shape", item.shape}, {"data_offsets", {offset, end}}};
    offset = end;
  }
  std::string text = header.dump();
  text.resize((text.size() + 7) / 8 * 8, ' ');  // tensors stay aligned, as the format asks
  return text;
}

// A file descriptor that removes its file unless it was kept.
class Temporary {
 public:
  explicit Temporary(std::string path)
      : path_(std::move(path)),
        descriptor_(::open(path_.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644)) {}
  ~Temporary() {
    if (descriptor_ >= 0) ::close(descriptor_);
    if (!path_.empty()) ::unlink(path_.c_str());
  }
  bool write(const void* data, size_t bytes) {
    const char* at = static_cast<const char*>(data);
    while (bytes > 0) {
      const ssize_t written = ::write(descriptor_, at, bytes);
      if (written < 0 && errno == EINTR) continue;
      if (written <= 0) return false;
      at += written, bytes -= static_cast<size_t>(written);
    }
    return true;
  }
  bool keep_as(const std::string& path) {
    if (::fsync(descriptor_) != 0 || ::rename(path_.c_str(), path.c_str()) != 0) return false;
    path_.clear();
    return true;
  }
  bool opened() const { return descriptor_ >= 0; }

 private:
  std::string path_;
  int descriptor_;
};

bool sync_folder(const std::string& path) {
  std::string folder = std::filesystem::path(path).parent_path().string();
  const int descriptor = ::open(folder.empty() ? "." : folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (descriptor < 0) return false;
  const bool synced = ::fsync(descriptor) == 0;
  ::close(descriptor);
  return synced;
}

bool write_all(Temporary& file, const std::vector<Item>& items, const std::string& header) {
  const uint64_t header_bytes = header.size();
  if (!file.write(&header_bytes, sizeof header_bytes) || !file.write(header.data(), header.size()))
    return false;
  std::vector<std::byte> buffer;
  for (const Item& item : items) {
    buffer.resize(bytes_of(item));
    item.fill(buffer);
    if (!file.write(buffer.data(), buffer.size())) return false;
  }
  return true;
}

}  // namespace

bool write(const std::string& path, const std::vector<Item>& items,
           const std::map<std::string, std::string>& metadata, std::string* error) {
  Temporary file(path + ".tmp");
  if (file.opened() && write_all(file, items, header_of(items, metadata)) && file.keep_as(path) &&
      sync_folder(path))
    return true;
  *error = "can not write '" + path + "': " + std::strerror(errno);
  return false;
}

}  // namespace spillway::trainer::safetensors
