#include "simulator/cards/fat_binary.h"

#include <elf.h>

#include <algorithm>
#include <cstring>
#include <string_view>

namespace spillway::cards {
namespace {

constexpr uint32_t kWrapperMagic = 0x466243b1, kContainerMagic = 0xba55ed50;
constexpr uint64_t kCompressed = 0xa000;  // by LZ4, by zstd
constexpr uint64_t kArchitectureOnly = uint64_t{1} << 20, kFamilyOnly = uint64_t{1} << 21;
constexpr uint16_t kPtx = 1, kCubin = 2, kCudaMachine = 190;

struct Wrapper {
  uint32_t magic, version;
  const void* container;
  const void* more;
};

struct ContainerHeader {
  uint32_t magic;
  uint16_t version, header_bytes;
  uint64_t bytes;  // behind the header
};

struct Entry {
  uint16_t kind, version;
  uint32_t header_bytes;
  uint64_t payload_bytes;
  uint32_t compressed_bytes, options_offset;
  uint16_t minor, major;
  uint32_t sm, name_offset, name_bytes;
  uint64_t flags, reserved, uncompressed_bytes;
};
static_assert(sizeof(Entry) == 64 && sizeof(ContainerHeader) == 16);

// Data of a program lie at any alignment.
template <class Value>
std::optional<Value> read_at(const void* data, size_t size, size_t offset) {
  if (offset > size || size - offset < sizeof(Value)) return std::nullopt;
  Value value;
  std::memcpy(&value, static_cast<const char*>(data) + offset, sizeof value);
  return value;
}

Image image_of(const Entry& entry) {
  return {.ptx = entry.kind == kPtx,
          .sm = static_cast<int>(std::min<uint32_t>(entry.sm, 9999)),
          .suffix = entry.flags & kArchitectureOnly ? 'a'
                    : entry.flags & kFamilyOnly     ? 'f'
                                                    : '\0',
          .bytes = entry.flags & kCompressed ? entry.uncompressed_bytes : entry.payload_bytes};
}

std::vector<Image> read_container(const void* data, size_t size) {
  std::vector<Image> images;
  const auto header = read_at<ContainerHeader>(data, size, 0);
  if (!header || header->header_bytes < sizeof *header) return images;
  const uint64_t available = std::min<uint64_t>(container_bytes(data, size), size);
  for (uint64_t offset = header->header_bytes;;) {
    const auto entry = read_at<Entry>(data, available, offset);
    if (!entry || entry->header_bytes < sizeof *entry) return images;
    if (entry->kind == kPtx || entry->kind == kCubin) images.push_back(image_of(*entry));
    const uint64_t left = available - offset;
    if (entry->header_bytes > left || entry->payload_bytes > left - entry->header_bytes) return images;
    offset += entry->header_bytes + entry->payload_bytes;
  }
}

// The architecture is in the flags of the ELF header: in the lowest byte up to CUDA 12, then in the second.
std::vector<Image> read_cubin(const void* data, size_t size) {
  constexpr size_t kAbi = 7, kMachine = 18, kFlags = 48;
  constexpr unsigned char kNewAbi = 0x41;
  const auto abi = read_at<unsigned char>(data, size, kAbi);
  const auto machine = read_at<uint16_t>(data, size, kMachine);
  const auto flags = read_at<uint32_t>(data, size, kFlags);
  if (!abi || !flags || machine != kCudaMachine) return {};
  const auto sm = static_cast<int>((*abi == kNewAbi ? *flags >> 8 : *flags) & 0xff);
  return {{.ptx = false, .sm = sm, .suffix = 0, .bytes = 0}};
}

std::optional<Elf64_Shdr> section_of(const void* data, size_t size, const Elf64_Ehdr& header,
                                     uint64_t index) {
  return read_at<Elf64_Shdr>(data, size, header.e_shoff + index * sizeof(Elf64_Shdr));
}

std::string text_at(const void* data, size_t size, const Elf64_Shdr& strings, uint64_t offset) {
  const uint64_t start = strings.sh_offset + offset;
  if (offset >= strings.sh_size || start >= size) return "";
  const char* text = static_cast<const char*>(data) + start;
  return {text, strnlen(text, std::min<uint64_t>(strings.sh_size - offset, size - start))};
}

void add_variables(const void* data, size_t size, const Elf64_Shdr& symbols, const Elf64_Shdr& strings,
                   std::vector<Variable>* out) {
  for (uint64_t i = 0; i < symbols.sh_size / sizeof(Elf64_Sym); ++i) {
    const auto symbol = read_at<Elf64_Sym>(data, size, symbols.sh_offset + i * sizeof(Elf64_Sym));
    if (!symbol) return;
    if (ELF64_ST_TYPE(symbol->st_info) != STT_OBJECT || symbol->st_shndx == SHN_UNDEF || symbol->st_size == 0)
      continue;
    out->push_back({text_at(data, size, strings, symbol->st_name), symbol->st_size});
  }
}

std::vector<Image> read_ptx(std::string_view text) {
  constexpr std::string_view kTarget = ".target sm_";
  const size_t found = text.find(kTarget);
  if (found == std::string_view::npos) return {};
  Image image{.ptx = true, .bytes = text.size()};
  size_t at = found + kTarget.size();
  for (; at < text.size() && text[at] >= '0' && text[at] <= '9' && image.sm < 1000; ++at)
    image.sm = image.sm * 10 + (text[at] - '0');
  if (at < text.size() && (text[at] == 'a' || text[at] == 'f')) image.suffix = text[at];
  return {image};
}

}  // namespace

BinaryKind kind_of(const void* data, size_t size) {
  const auto magic = read_at<uint32_t>(data, size, 0);
  if (!magic) return BinaryKind::kUnknown;
  if (*magic == kWrapperMagic) return BinaryKind::kWrapper;
  if (*magic == kContainerMagic) return BinaryKind::kContainer;
  if (std::memcmp(data,
                  "\x7f"
                  "ELF",
                  4) == 0)
    return BinaryKind::kCubin;
  const char first = *static_cast<const char*>(data);
  return first == '.' || first == '/' || first == '\n' || first == ' ' ? BinaryKind::kPtx
                                                                       : BinaryKind::kUnknown;
}

uint64_t container_bytes(const void* data, size_t size) {
  const auto header = read_at<ContainerHeader>(data, size, 0);
  constexpr uint64_t kMost = uint64_t{1} << 40;
  if (!header || header->magic != kContainerMagic || header->bytes > kMost) return 0;
  return header->header_bytes + header->bytes;
}

std::vector<Image> read_images(const void* data, size_t size) {
  switch (kind_of(data, size)) {
    case BinaryKind::kContainer:
      return read_container(data, size);
    case BinaryKind::kCubin:
      return read_cubin(data, size);
    case BinaryKind::kPtx: {
      const auto* text = static_cast<const char*>(data);
      return read_ptx({text, strnlen(text, size)});
    }
    default:
      return {};
  }
}

std::vector<Variable> read_variables(const void* data, size_t size) {
  if (kind_of(data, size) != BinaryKind::kCubin) return {};
  const auto header = read_at<Elf64_Ehdr>(data, size, 0);
  if (!header || header->e_machine != kCudaMachine) return {};
  std::vector<Variable> found;
  for (uint64_t i = 0; i < header->e_shnum; ++i) {
    const auto symbols = section_of(data, size, *header, i);
    if (!symbols || symbols->sh_type != SHT_SYMTAB) continue;
    if (const auto strings = section_of(data, size, *header, symbols->sh_link))
      add_variables(data, size, *symbols, *strings, &found);
  }
  return found;
}

const void* unwrap(const void* wrapper) {
  if (!wrapper || kind_of(wrapper, sizeof(Wrapper)) != BinaryKind::kWrapper) return nullptr;
  Wrapper known;
  std::memcpy(&known, wrapper, sizeof known);
  const void* container = known.container;
  return container && container_bytes(container, sizeof(ContainerHeader)) ? container : nullptr;
}

bool runs_on(const Image& image, int major, int minor) {
  const int card = major * 10 + minor;
  if (image.suffix == 'a') return image.sm == card;
  const bool same_major = image.sm / 10 == major;
  return image.sm <= card && (same_major || (image.ptx && image.suffix == 0));
}

const Image* choose_image(const std::vector<Image>& images, int major, int minor) {
  const Image* best = nullptr;
  for (const Image& image : images) {
    if (!runs_on(image, major, minor)) continue;
    const bool better = !best || image.ptx < best->ptx || (image.ptx == best->ptx && image.sm > best->sm);
    if (better) best = &image;
  }
  return best;
}

std::string list_images(const std::vector<Image>& images) {
  std::vector<std::string> names;
  for (const Image& image : images) {
    std::string name = (image.ptx ? "compute_" : "sm_") + std::to_string(image.sm);
    if (image.suffix) name += image.suffix;
    if (std::find(names.begin(), names.end(), name) == names.end()) names.push_back(name);
  }
  std::string text;
  for (const std::string& name : names) text += (text.empty() ? "" : " ") + name;
  return text;
}

}  // namespace spillway::cards
