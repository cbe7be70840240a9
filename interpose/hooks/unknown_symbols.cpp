#include "interpose/hooks/unknown_symbols.h"

#include <pthread.h>

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstring>

#include "interpose/gate/gate.h"
#include "interpose/hooks/inside.h"
#include "interpose/plain_lock.h"
#include "interpose/process.h"

namespace spillway::interpose {
namespace {

constexpr size_t kStubs = 256;  // as the assembler below has them
constexpr size_t kStubBytes = 32;

struct Stub {
  char name[64];
  bool works;  // on memory
};
PlainMutex<LockOrder::kUnknownSymbols> filling;
Stub stubs[kStubs] SPILLWAY_GUARDED_BY(filling);
size_t count SPILLWAY_GUARDED_BY(filling) = 0;

void describe(char (&out)[64], const char* name, int cuda_version) {
  const int major = cuda_version / 1000, minor = cuda_version % 1000 / 10;
  if (cuda_version == 0)
    std::snprintf(out, sizeof out, "%s", name);
  else
    std::snprintf(out, sizeof out, "%s of CUDA %d.%d", name, major, minor);
}

bool is_among(const char* names, const char* name) {
  const size_t length = std::strlen(name);
  for (const char* at = std::strstr(names, name); at != nullptr; at = std::strstr(at + 1, name))
    if ((at == names || at[-1] == ' ') && (at[length] == '\0' || at[length] == ',')) return true;
  return false;
}

// What does not fit is left out.
void add_to_summary(const char* name) {
  char(&names)[sizeof ProcessSummary::unlisted] = summary().unlisted;
  if (is_among(names, name)) return;
  const size_t held = strnlen(names, sizeof names), more = std::strlen(name);
  const char* const between = held == 0 ? "" : ", ";
  if (held + std::strlen(between) + more < sizeof names)
    std::snprintf(names + held, sizeof names - held, "%s%s", between, name);
}

void note_call(const Stub& stub) {
  if (stub.works) unlisted_work.store(true, std::memory_order_relaxed);
  add_to_summary(stub.name);
}

}  // namespace
}  // namespace spillway::interpose

extern "C" {
[[gnu::visibility("hidden")]] extern const char spillway_stubs[];
[[gnu::visibility("hidden")]] void* spillway_stub_targets[spillway::interpose::kStubs];
[[gnu::visibility("hidden")]] std::atomic<uint8_t> spillway_stub_called[spillway::interpose::kStubs];

// The first call: behind a gate that may be closed now, and that then knows of it. Returns where to go.
[[gnu::visibility("hidden"), gnu::used]] void* spillway_stub_first(size_t number) {
  using namespace spillway::interpose;
  void* const target = spillway_stub_targets[number];
  if (Inside::now()) return target;  // the driver's own call, or Spillway's
  const Passage passage;
  const spillway::Locked lock(filling);
  if (spillway_stub_called[number].load(std::memory_order_relaxed) == 0) note_call(stubs[number]);
  spillway_stub_called[number].store(1, std::memory_order_relaxed);
  return target;
}
}

namespace spillway::interpose {

namespace {

pthread_once_t prepared = PTHREAD_ONCE_INIT;

// What the child calls is noted in its own summary.
void in_child() {
  filling.free_in_child();
  for (auto& called : spillway_stub_called) called.store(0, std::memory_order_relaxed);
}

void prepare() {
  pthread_atfork(nullptr, nullptr, in_child);
}

// A function for which there is no stub counts as called, behind a gate that may be closed now.
void note_without_stub(const char* name, int cuda_version) {
  Stub beyond{};
  describe(beyond.name, name, cuda_version);
  beyond.works = works_on_memory(name);
  const Passage passage;
  const Locked lock(filling);
  note_call(beyond);
}

// `found` itself where there is no room for one more.
void* known_stub(void* found, const char* name, int cuda_version) {
  const Locked lock(filling);
  size_t number = 0;
  while (number < count && spillway_stub_targets[number] != found) ++number;
  if (number == kStubs) return found;
  if (number == count) {
    describe(stubs[number].name, name, cuda_version);
    stubs[number].works = works_on_memory(name);
    spillway_stub_targets[number] = found;
    ++count;
  }
  return const_cast<char*>(spillway_stubs + number * kStubBytes);
}

}  // namespace

void* stub_for(void* found, const char* name, int cuda_version) {
  pthread_once(&prepared, prepare);
  void* const out = known_stub(found, name, cuda_version);
  if (out == found) note_without_stub(name, cuda_version);
  return out;
}

}  // namespace spillway::interpose
