#include <cstring>
#include <nlohmann/json.hpp>
#include <string_view>

#include "trainer/checkpoint/durable_file.h"
#include "trainer/checkpoint/safetensors.h"

namespace spillway::trainer::safetensors {
namespace {

uint64_t bytes_of(const Item& item) {
  uint64_t bytes = bytes_of_type(item.type);
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

std::string_view view_of(const void* data, size_t bytes) {
  return {static_cast<const char*>(data), bytes};
}

int write_all(DraftFile& file, const std::vector<Item>& items, const std::string& header) {
  const uint64_t header_bytes = header.size();
  int error = file.write(view_of(&header_bytes, sizeof header_bytes));
  if (error == 0) error = file.write(header);
  std::vector<std::byte> buffer;
  for (const Item& item : items) {
    if (error != 0) return error;
    buffer.resize(bytes_of(item));
    item.fill(buffer);
    error = file.write(view_of(buffer.data(), buffer.size()));
  }
  return error;
}

}  // namespace

bool write(const std::string& path, const std::vector<Item>& items,
           const std::map<std::string, std::string>& metadata, std::string* error) {
  const std::string header = header_of(items, metadata);
  const int wrong = write_durably(path, [&](DraftFile& file) { return write_all(file, items, header); });
  if (wrong != 0) *error = "cannot write '" + path + "': " + std::strerror(wrong);
  return wrong == 0;
}

}  // namespace spillway::trainer::safetensors
