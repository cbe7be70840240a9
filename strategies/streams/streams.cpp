#include "strategies/streams/streams.h"

#include <dlfcn.h>

#include "allocator/streams/program_streams.h"
#include "strategies/core/process.h"

namespace spillway {
namespace {

std::atomic<int (*)(uint64_t)> lasting{nullptr};

void tell_end(uint64_t stream) {
  if (Allocator* allocator = Process::get().allocator()) stream_ends(*allocator, StreamId{stream});
}

}  // namespace

void follow_program_streams(Allocator& allocator) {
  void* found = dlsym(RTLD_DEFAULT, "spillway_follow_streams");
  if (found != nullptr) {
    const auto follow = reinterpret_cast<decltype(&spillway_follow_streams)>(found);
    follow_streams(allocator, follow(&tell_end), nullptr);
  } else {
    follow_streams(allocator, nullptr, lasting.load());
  }
}

}  // namespace spillway

void spillway_set_lasting_streams(int (*lasts)(uint64_t stream)) {
  spillway::lasting.store(lasts);
}
