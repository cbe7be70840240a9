#include "simulator/libraries/nccl/error.h"

#include <cstdio>
#include <mutex>

namespace spillway::nccl {
namespace {

std::mutex mutex;

// Never destroyed: exit handlers may still call.
std::string& text() {
  static auto* const held = new std::string;
  return *held;
}

}  // namespace

ncclResult_t fail(ncclResult_t result, std::string why) {
  const std::lock_guard lock(mutex);
  text() = std::move(why);
  return result;
}

const char* last_error() {
  thread_local std::string copy;
  const std::lock_guard lock(mutex);
  copy = text();
  return copy.c_str();
}

void say(const std::string& what) {
  std::fprintf(stderr, "spillway simulator: NCCL: %s\n", what.c_str());
}

}  // namespace spillway::nccl
