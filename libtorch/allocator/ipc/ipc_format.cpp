#include "libtorch/allocator/ipc/ipc_format.h"

#include <algorithm>

namespace spillway::libtorch {
namespace {

constexpr char kAllocationKind = 'c', kPagesKind = 'e', kMixedPagesKind = 's';
constexpr size_t kAllocationBytes = 64;  // CUDA_IPC_HANDLE_SIZE
constexpr size_t kFabricBytes = 64;      // CUmemFabricHandle
constexpr uint64_t kMagic = 0x3159415757494c50;
constexpr uint64_t kMostPages = uint64_t{1} << 20;

// The native allocator's, field by field.
struct Header {
  int32_t process = 0;
  int32_t padding = 0;
  uint64_t page_bytes = 0;  // 0: of several sizes
  uint64_t pages = 0;
};
static_assert(sizeof(Header) == 24);

// After it since version 3: what names a page.
struct PageNames {
  int32_t kind = 0;
  int32_t padding = 0;
};
constexpr int32_t kDescriptors = 1, kFabric = 2;

struct Addition {
  uint64_t magic = kMagic;
  uint64_t start_time = 0;
  std::array<uint64_t, 2> socket{};
};

struct AddedPage {
  uint64_t bytes = 0, serial = 0;
};

template <class Value>
void append(std::string& out, const Value& value) {
  out.append(reinterpret_cast<const char*>(&value), sizeof value);
}

template <class Value>
bool take(std::string_view& in, Value* value) {
  if (in.size() < sizeof *value) return false;
  in.copy(reinterpret_cast<char*>(value), sizeof *value);
  in.remove_prefix(sizeof *value);
  return true;
}

std::string cut_short() {
  return "the handle of a shared tensor was cut short";
}

std::string parse_addition(std::string_view in, uint64_t page_bytes, ParsedHandle* out) {
  Addition addition;
  if (!take(in, &addition) || addition.magic != kMagic)
    return "a shared tensor's handle is neither the native allocator's nor Spillway's";
  out->by_spillway = true;
  out->sharer.start_time = addition.start_time;
  out->sharer.socket = addition.socket;
  for (spillway_shared_page& page : out->pages) {
    AddedPage added;
    if (!take(in, &added)) return cut_short();
    if (page_bytes != 0 && added.bytes != page_bytes) return "a shared tensor's handle contradicts itself";
    page.bytes = added.bytes;
    page.serial = added.serial;
  }
  return in.empty() ? "" : "a shared tensor's handle is longer than it says";
}

std::string parse_pages(char version, std::string_view in, bool mixed, ParsedHandle* out) {
  Header header;
  PageNames names{kDescriptors};
  if (!take(in, &header) || (version >= 3 && !take(in, &names))) return cut_short();
  if (header.process <= 0 || header.pages == 0 || header.pages > kMostPages ||
      mixed != (header.page_bytes == 0)) {
    return "a shared tensor's handle names no process, no pages, or no size";
  }
  if (names.kind == kFabric || (!mixed && version < 3 && in.size() == header.pages * kFabricBytes))
    return "it was shared by PyTorch's native allocator through a fabric handle, which Spillway's allocator "
           "cannot open: use Spillway's or cudaMalloc's memory in the sending process "
           "(expandable_segments:False)";
  if (names.kind != kDescriptors)
    return "a shared tensor's handle names its pages in the unknown way " + std::to_string(names.kind);
  out->sharer.process = header.process;
  for (uint64_t i = 0; i < header.pages; ++i) {
    spillway_shared_page page{header.page_bytes, 0, -1};
    if (!take(in, &page.descriptor)) return cut_short();
    out->pages.push_back(page);
  }
  // Ours always adds something.
  return in.empty() && !mixed ? "" : parse_addition(in, header.page_bytes, out);
}

}  // namespace

std::string encode_pages(char version, const Sharer& sharer, const std::vector<spillway_shared_page>& pages) {
  const uint64_t size = pages.front().bytes;
  const bool mixed =
      std::any_of(pages.begin(), pages.end(), [&](const auto& page) { return page.bytes != size; });
  std::string out{version, mixed ? kMixedPagesKind : kPagesKind};
  append(out, Header{sharer.process, 0, mixed ? 0 : size, pages.size()});
  if (version >= 3) append(out, PageNames{kDescriptors});
  for (const spillway_shared_page& page : pages) append(out, page.descriptor);
  append(out, Addition{kMagic, sharer.start_time, sharer.socket});
  for (const spillway_shared_page& page : pages) append(out, AddedPage{page.bytes, page.serial});
  return out;
}

std::string encode_allocation(char version, std::string_view bytes) {
  std::string out{version, kAllocationKind};
  return out.append(bytes);
}

std::string parse_handle(std::string_view handle, ParsedHandle* out) {
  // Before it had versions, PyTorch sent a bare cudaIpcMemHandle_t.
  if (handle.size() == kAllocationBytes) {
    out->kind = HandleKind::kAllocation;
    return "";
  }
  if (handle.size() < 2) return cut_short();
  const char version = handle[0], kind = handle[1];
  if (version > kNewestHandleVersion || version < 1)
    return "its handle is of version " + std::to_string(version) +
           ", and this Spillway knows versions up to " + std::to_string(kNewestHandleVersion);
  handle.remove_prefix(2);
  if (kind == kAllocationKind) {
    out->kind = HandleKind::kAllocation;
    return handle.size() >= kAllocationBytes ? "" : cut_short();
  }
  if (kind != kPagesKind && kind != kMixedPagesKind)
    return "its handle is of the unknown kind " + std::to_string(static_cast<int>(kind));
  return parse_pages(version, handle, kind == kMixedPagesKind, out);
}

}  // namespace spillway::libtorch
