#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <nlohmann/json.hpp>
#include <set>

#include "trainer/checkpoint/safetensors.h"

namespace spillway::trainer::safetensors {
namespace {

using Json = nlohmann::json;
constexpr uint64_t kMostHeaderBytes = 100'000'000;  // the format's own bound

// The header as JSON; a key that stands twice is an error, since readers would differ on which one holds.
std::optional<Json> parse_header(std::string_view text, std::string* error) {
  std::vector<std::set<std::string>> keys;
  bool twice = false;
  std::string which;
  const auto watch = [&](int, Json::parse_event_t event, Json& value) {
    if (event == Json::parse_event_t::object_start) keys.emplace_back();
    if (event == Json::parse_event_t::object_end) keys.pop_back();
    if (event == Json::parse_event_t::key && !keys.back().insert(value.get<std::string>()).second)
      twice = true, which = value.get<std::string>();
    return true;
  };
  Json header = Json::parse(text, watch, false);
  if (header.is_discarded() || !header.is_object())
    *error = "the header is no JSON object";
  else if (twice)
    *error = "the key '" + which + "' stands twice in the header";
  else
    return header;
  return std::nullopt;
}

std::optional<uint64_t> whole(const Json& value) {
  return value.is_number_unsigned() ? std::optional<uint64_t>(value.get<uint64_t>()) : std::nullopt;
}

// The bytes that shape and type ask for; nothing when they are malformed or overflow.
std::optional<uint64_t> tensor_bytes(const Json& shape, uint64_t element, std::vector<int64_t>* sizes) {
  uint64_t bytes = element;
  for (const Json& dimension : shape) {
    const auto size = whole(dimension);
    if (!size || *size > INT64_MAX || __builtin_mul_overflow(bytes, *size, &bytes)) return std::nullopt;
    sizes->push_back(static_cast<int64_t>(*size));
  }
  return bytes;
}

struct Extent {
  uint64_t begin, end;
};

bool read_tensor(const std::string& name, const Json& entry, std::span<const std::byte> data,
                 StoredTensor* out, Extent* extent, std::string* error) {
  const auto fail = [&](const char* why) {
    *error = "tensor '" + name + "': " + why;
    return false;
  };
  if (!entry.is_object() || entry.size() != 3 || !entry.contains("dtype") || !entry.contains("shape") ||
      !entry.contains("data_offsets"))
    return fail("its entry must have dtype, shape and data_offsets, and nothing else");
  const Json &type = entry["dtype"], &shape = entry["shape"], &offsets = entry["data_offsets"];
  if (!type.is_string() || bytes_of_type(type.get<std::string>()) == 0) return fail("unknown dtype");
  if (!shape.is_array()) return fail("shape must be a list");
  if (!offsets.is_array() || offsets.size() != 2) return fail("data_offsets must be two numbers");
  const auto begin = whole(offsets[0]), end = whole(offsets[1]);
  if (!begin || !end || *begin > *end || *end > data.size()) return fail("data_offsets leave the file");
  out->type = type.get<std::string>();
  const auto bytes = tensor_bytes(shape, bytes_of_type(out->type), &out->shape);
  if (!bytes || *bytes != *end - *begin) return fail("its shape does not fit its data_offsets");
  out->data = data.subspan(*begin, *bytes);
  *extent = {*begin, *end};
  return true;
}

bool read_metadata(const Json& entry, std::map<std::string, std::string>* out, std::string* error) {
  if (!entry.is_object()) return *error = "__metadata__ must be an object", false;
  for (const auto& [key, value] : entry.items()) {
    if (!value.is_string()) return *error = "__metadata__ '" + key + "' must be text", false;
    (*out)[key] = value.get<std::string>();
  }
  return true;
}

bool covers(std::vector<Extent> extents, uint64_t bytes, std::string* error) {
  std::sort(extents.begin(), extents.end(), [](const Extent& a, const Extent& b) {
    return std::tie(a.begin, a.end) < std::tie(b.begin, b.end);
  });
  uint64_t end = 0;
  for (const Extent& extent : extents) {
    if (extent.begin != end)
      return *error = "tensors overlap or leave a gap at byte " + std::to_string(end), false;
    end = extent.end;
  }
  if (end != bytes) return *error = "there are bytes behind the last tensor", false;
  return true;
}

}  // namespace

uint64_t bytes_of_type(const std::string& type) {
  static const std::map<std::string, uint64_t> kTypes = {
      {"BOOL", 1}, {"U8", 1},  {"I8", 1},  {"F8_E5M2", 1}, {"F8_E4M3", 1}, {"I16", 2}, {"U16", 2}, {"F16", 2},
      {"BF16", 2}, {"I32", 4}, {"U32", 4}, {"F32", 4},     {"F64", 8},     {"I64", 8}, {"U64", 8}};
  const auto it = kTypes.find(type);
  return it == kTypes.end() ? 0 : it->second;
}

std::unique_ptr<File> File::parse(std::span<const std::byte> bytes, std::string* error) {
  uint64_t header_bytes = 0;
  if (bytes.size() < sizeof header_bytes) return *error = "too short for a safetensors file", nullptr;
  std::memcpy(&header_bytes, bytes.data(), sizeof header_bytes);
  if (header_bytes > kMostHeaderBytes || header_bytes > bytes.size() - sizeof header_bytes)
    return *error = "the header's length leaves the file: cut short, or no safetensors file", nullptr;
  const std::string_view text(reinterpret_cast<const char*>(bytes.data()) + sizeof header_bytes,
                              header_bytes);
  const auto header = parse_header(text, error);
  if (!header) return nullptr;
  const auto data = bytes.subspan(sizeof header_bytes + header_bytes);
  std::unique_ptr<File> file(new File);
  std::vector<Extent> extents;
  for (const auto& [name, entry] : header->items()) {
    if (name == "__metadata__") {
      if (!read_metadata(entry, &file->metadata_, error)) return nullptr;
      continue;
    }
    Extent extent{};
    if (!read_tensor(name, entry, data, &file->tensors_[name], &extent, error)) return nullptr;
    extents.push_back(extent);
  }
  if (!covers(std::move(extents), data.size(), error)) return nullptr;
  return file;
}

std::unique_ptr<File> File::open(const std::string& path, std::string* error) {
  const auto fail = [&](const std::string& why) { return *error = path + ": " + why, nullptr; };
  const int descriptor = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (descriptor < 0) return fail(std::strerror(errno));
  struct stat status{};
  if (::fstat(descriptor, &status) != 0 || !S_ISREG(status.st_mode) || status.st_size == 0) {
    ::close(descriptor);
    return fail("is empty or no regular file");
  }
  const size_t bytes = static_cast<size_t>(status.st_size);
  void* mapping = ::mmap(nullptr, bytes, PROT_READ, MAP_PRIVATE, descriptor, 0);
  ::close(descriptor);
  if (mapping == MAP_FAILED) return fail(std::strerror(errno));
  std::string why;
  auto file = parse({static_cast<const std::byte*>(mapping), bytes}, &why);
  if (!file) {
    ::munmap(mapping, bytes);
    return fail(why);
  }
  file->mapping_ = mapping;
  file->mapped_bytes_ = bytes;
  return file;
}

File::~File() {
  if (mapping_) ::munmap(mapping_, mapped_bytes_);
}

}  // namespace spillway::trainer::safetensors
