#include "strategies/caller.h"

#include <dlfcn.h>
#include <unwind.h>

#include <string_view>

namespace spillway {
namespace {

constexpr int kMostFrames = 128;

struct Walk {
  const void* own = nullptr;  // where this library is loaded
  int frames = 0;
  Caller caller;
};

std::string_view file_name(const char* path) {
  const std::string_view text = path == nullptr ? "" : path;
  return text.substr(text.rfind('/') + 1);
}

bool passes_on(std::string_view file) {
  for (const std::string_view library : {"libspillway", "libcuda.so", "libcudart"})
    if (file.starts_with(library)) return true;
  return false;
}

_Unwind_Reason_Code visit(_Unwind_Context* context, void* argument) {
  auto& walk = *static_cast<Walk*>(argument);
  Dl_info info{};
  const auto at = reinterpret_cast<const void*>(_Unwind_GetIP(context));
  if (at != nullptr && dladdr(at, &info) != 0 && info.dli_fbase != walk.own) {
    const std::string_view file = file_name(info.dli_fname);
    walk.caller.inside_framework |= file.starts_with("libc10_cuda");
    if (walk.caller.library.empty() && !passes_on(file)) walk.caller.library = file;
  }
  return ++walk.frames < kMostFrames ? _URC_NO_REASON : _URC_END_OF_STACK;
}

}  // namespace

Caller find_caller() {
  Walk walk;
  Dl_info own{};
  if (dladdr(reinterpret_cast<const void*>(&find_caller), &own) != 0) walk.own = own.dli_fbase;
  _Unwind_Backtrace(visit, &walk);
  return walk.caller;
}

}  // namespace spillway
