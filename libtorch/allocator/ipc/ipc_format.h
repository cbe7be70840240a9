// The bytes by which one process tells another which memory it shares.
//
// They are those of the process's PyTorch's own allocator, so that it can read ours and we its: a version (2;
// 3 since PyTorch 2.13), a kind, and
//   'c'  a cudaIpcMemHandle_t of one whole allocation;
//   'e'  the process, the size of every page, how many, in version 3 what names a page, and a file descriptor
//        in that process for each.
// After 'e' Spillway adds what it needs for itself, which the native allocator does not read. Pages of
// several sizes, which the native allocator could not map, are of Spillway's own kind 's', otherwise the
// same.
//
// Thread-safety: pure functions. Errors: `parse` accepts any bytes and says what is wrong with them.
#pragma once
#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "strategies/core/core.h"

namespace spillway::libtorch {

// What a PyTorch writes, by its minor version. It reads nothing older than that.
constexpr char handle_version(int torch_minor) {
  return torch_minor >= 13 ? 3 : 2;
}
inline constexpr char kNewestHandleVersion = 3;

// Which process: its number alone may be used again.
struct Sharer {
  int32_t process = 0;
  uint64_t start_time = 0;  // 0: not known
  // Name of the socket at which it hands out descriptors; all zeros: it has none.
  std::array<uint64_t, 2> socket{};
};

enum class HandleKind : uint8_t { kAllocation, kPages };

struct ParsedHandle {
  HandleKind kind = HandleKind::kPages;
  bool by_spillway = false;
  Sharer sharer;
  std::vector<spillway_shared_page> pages;  // serial 0 unless by Spillway
};

std::string encode_pages(char version, const Sharer& sharer, const std::vector<spillway_shared_page>& pages);
// `bytes`: of a cudaIpcMemHandle_t.
std::string encode_allocation(char version, std::string_view bytes);

// "" or why the handle cannot be used.
std::string parse_handle(std::string_view handle, ParsedHandle* out);

}  // namespace spillway::libtorch
