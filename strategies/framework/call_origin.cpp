#include "strategies/framework/call_origin.h"

#include <dlfcn.h>
#include <unwind.h>

#include <cstring>
#include <string_view>

namespace spillway {
namespace {

constexpr int kMostFrames = 128;

struct Walk {
  const void* own = nullptr;  // where this library is loaded
  int frames = 0;
  bool through_program = false, through_nccl2 = false;
  CallOrigin caller;
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

// What lies below a thread that NCCL has started itself.
bool belongs_to_nccls_thread(std::string_view file) {
  for (const std::string_view library : {"libnccl", "libc.so", "libpthread", "libstdc++", "libgcc_s"})
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
    walk.through_program |= !passes_on(file) && !belongs_to_nccls_thread(file);
    walk.through_nccl2 |= info.dli_sname != nullptr && std::strstr(info.dli_sname, "c10d5nccl2") != nullptr;
    if (walk.caller.library.empty() && !passes_on(file)) walk.caller.library = file;
  }
  return ++walk.frames < kMostFrames ? _URC_NO_REASON : _URC_END_OF_STACK;
}

}  // namespace

CallOrigin find_call_origin() {
  Walk walk;
  Dl_info own{};
  if (dladdr(reinterpret_cast<const void*>(&find_call_origin), &own) != 0) walk.own = own.dli_fbase;
  _Unwind_Backtrace(visit, &walk);
  const bool nccl = walk.caller.library.starts_with("libnccl");
  walk.caller.inside_nccl2 = nccl && walk.through_nccl2;
  walk.caller.on_nccls_thread = nccl && !walk.through_program;
  return walk.caller;
}

}  // namespace spillway
