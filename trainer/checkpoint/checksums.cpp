#include "trainer/checkpoint/checksums.h"

#include <cstring>
#include <memory>
#include <utility>

#include "trainer/residency/nvme/checksum.h"

namespace spillway::trainer {
namespace {

constexpr const char* kMetadata = "__metadata__";

using Sums = std::map<std::string, uint64_t>;  // by the tensor's name

uint64_t sum_of(const std::map<std::string, std::string>& metadata) {
  std::string text;
  for (const auto& [key, value] : metadata) text.append(key).append(1, '\0').append(value).append(1, '\0');
  return block_checksum(reinterpret_cast<const std::byte*>(text.data()), text.size());
}

// What the file says; empty where it has none, or of other tensors than it has.
Sums told(const safetensors::File& file) {
  const auto found = file.tensors().find(kChecksums);
  if (found == file.tensors().end() || found->second.type != "U64" ||
      found->second.data.size() != file.tensors().size() * sizeof(uint64_t))
    return {};
  std::vector<uint64_t> numbers(file.tensors().size());
  std::memcpy(numbers.data(), found->second.data.data(), found->second.data.size());
  Sums sums{{kMetadata, numbers.front()}};
  auto next = numbers.begin() + 1;
  for (const auto& [name, tensor] : file.tensors())
    if (name != kChecksums) sums[name] = *next++;
  return sums;
}

}  // namespace

void add_checksums(const std::map<std::string, std::string>& metadata,
                   std::vector<safetensors::Item>* items) {
  const auto sums = std::make_shared<Sums>();
  for (safetensors::Item& item : *items) {
    (*sums)[item.name] = 0;
    item.fill = [fill = std::move(item.fill), sums, name = item.name](std::span<std::byte> bytes) {
      fill(bytes);
      (*sums)[name] = block_checksum(bytes.data(), bytes.size());
    };
  }
  const auto write = [sums, of_metadata = sum_of(metadata)](std::span<std::byte> bytes) {
    std::vector<uint64_t> numbers{of_metadata};
    for (const auto& [name, sum] : *sums) numbers.push_back(sum);
    std::memcpy(bytes.data(), numbers.data(), bytes.size());
  };
  items->push_back({kChecksums, "U64", {static_cast<int64_t>(sums->size() + 1)}, write});
}

std::string damaged(const safetensors::File& file, const std::set<std::string>& names) {
  const Sums sums = told(file);
  if (sums.empty()) return file.tensors().contains(kChecksums) ? kChecksums : "";
  if (sums.at(kMetadata) != sum_of(file.metadata())) return kMetadata;
  for (const std::string& name : names) {
    const auto tensor = file.tensors().find(name);
    if (tensor == file.tensors().end()) continue;
    const std::span<const std::byte> data = tensor->second.data;
    if (block_checksum(data.data(), data.size()) != sums.at(name)) return name;
  }
  return "";
}

}  // namespace spillway::trainer
