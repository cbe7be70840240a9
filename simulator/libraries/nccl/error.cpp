#include "simulator/libraries/nccl/error.h"

#include <cstdio>

#include "base/mutex.h"

namespace spillway::nccl {
namespace {

Mutex<LockOrder::kLeaf> mutex;

// Never destroyed: exit handlers may still call.
std::string& text() SPILLWAY_REQUIRES(mutex) {
  static auto* const held = new std::string;
  return *held;
}

}  // namespace

ncclResult_t fail(ncclResult_t result, std::string why) {
  const Locked lock(mutex);
  text() = std::move(why);
  return result;
}

const char* last_error() {
  thread_local std::string copy;
  const Locked lock(mutex);
  copy = text();
  return copy.c_str();
}

void say(const std::string& what) {
  std::fprintf(stderr, "spillway simulator: NCCL: %s\n", what.c_str());
}

}  // namespace spillway::nccl
