#include "libtorch/plugin/failure.h"

#include <cxxabi.h>

#include <array>
#include <cstdio>
#include <cstring>
#include <exception>
#include <new>
#include <stdexcept>
#include <string>
#include <typeinfo>
#include <utility>

#include "base/this_library.h"
#include "libtorch/allocator/core.h"

namespace spillway::libtorch {
namespace {

class OutOfMemory : public std::bad_alloc {
 public:
  explicit OutOfMemory(std::string text) : text_(std::move(text)) {}
  const char* what() const noexcept override { return text_.c_str(); }

 private:
  std::string text_;
};

// As c10 writes sizes.
std::string size_text(uint64_t bytes) {
  static constexpr std::array<std::pair<double, const char*>, 3> kUnits{
      {{0x1p30, "GiB"}, {0x1p20, "MiB"}, {0x1p10, "KiB"}}};
  for (const auto& [unit, name] : kUnits) {
    if (static_cast<double>(bytes) <= unit) continue;
    std::array<char, 48> text{};
    std::snprintf(text.data(), text.size(), "%.2f %s", static_cast<double>(bytes) / unit, name);
    return text.data();
  }
  return std::to_string(bytes) + " bytes";
}

// PyTorch's own sentence first, for people and programs that search for it.
std::string describe(const spillway_failure& failure) {
  const spillway_memory& memory = failure.memory;
  const uint64_t allocated = memory.live + memory.rounding;
  const uint64_t idle = memory.reserved > allocated ? memory.reserved - allocated : 0;
  return "CUDA out of memory. Tried to allocate " + size_text(failure.requested_bytes) + ". GPU " +
         std::to_string(failure.device) + " has a total capacity of " + size_text(memory.device_bytes) +
         " of which " + size_text(memory.free) + " is free. Of the allocated memory " + size_text(allocated) +
         " is allocated by PyTorch, and " + size_text(idle) +
         " is reserved by PyTorch but unallocated.\nSpillway: " + failure.text;
}

// c10::SourceLocation: as c10::Error's constructor takes it.
struct SourceLocation {
  const char* function;
  const char* file;
  uint32_t line;
};

void destroy(void* exception) {
  static_cast<std::exception*>(exception)->~exception();
}

// c10::OutOfMemoryError is c10::Error with a virtual table of its own, and has been in every version: built
// from the symbols that the process has, since this library cannot be compiled against all of them. Returns
// where a symbol is missing.
void throw_as_libtorchs(const std::string& text) {
  using Construct = void (*)(void*, SourceLocation, std::string);
  auto construct = reinterpret_cast<Construct>(loaded_symbol(
      "libc10.so",
      "_ZN3c105ErrorC1ENS_14SourceLocationENSt7__cxx1112basic_stringIcSt11char_traitsIcESaIcEEE"));
  auto* type = static_cast<std::type_info*>(loaded_symbol("libc10_cuda.so", "_ZTIN3c1016OutOfMemoryErrorE"));
  auto* table = static_cast<void**>(loaded_symbol("libc10_cuda.so", "_ZTVN3c1016OutOfMemoryErrorE"));
  if (construct == nullptr || type == nullptr || table == nullptr) return;
  constexpr size_t kRoom = 1024;  // a c10::Error of 2.11 takes 136 bytes
  void* exception = abi::__cxa_allocate_exception(kRoom);
  std::memset(exception, 0, kRoom);
  construct(exception, {__func__, __FILE__, __LINE__}, text);
  constexpr size_t kFirstFunction = 2;  // after the offset to the top and the type
  *static_cast<void**>(exception) = static_cast<void*>(table + kFirstFunction);
  abi::__cxa_throw(exception, type, &destroy);
}

}  // namespace

void throw_failure(spillway_status status, const spillway_failure& failure) {
  if (status != SPILLWAY_OUT_OF_MEMORY && status != SPILLWAY_UNWIND)
    throw std::runtime_error("Spillway's allocator failed with status " +
                             std::to_string(static_cast<int>(status)) + ": " + core().last_error());
  const std::string text = describe(failure);
  throw_as_libtorchs(text);
  throw OutOfMemory(text);
}

}  // namespace spillway::libtorch
