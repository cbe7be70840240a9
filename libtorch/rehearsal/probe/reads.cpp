#include "libtorch/rehearsal/probe/reads.h"

#include <cxxabi.h>
#include <dlfcn.h>
#include <elf.h>
#include <execinfo.h>
#include <link.h>

#include <string_view>
#include <unordered_map>

#include "libtorch/rehearsal/probe/simulator.h"
#include "libtorch/rehearsal/state.h"

namespace spillway::rehearsal {
namespace {

constexpr int kMostFrames = 48;

// Operators of LibTorch whose result has a size that the device decides.
constexpr std::string_view kShapeOperators[] = {"nonzero",           "unique",   "masked_select",
                                                "repeat_interleave", "bincount", "histc",
                                                "index_put",         "nms",      "_assert_async"};
// Operators that give a single value to the program.
constexpr std::string_view kValueOperators[] = {"local_scalar_dense", "equal", "item"};

enum class Meaning { kNone, kShape, kValue };

bool contains_any(std::string_view text, const auto& words) {
  for (const std::string_view word : words)
    if (text.find(word) != std::string_view::npos) return true;
  return false;
}

// The mangled name is enough: it holds the operator's. The symbol must cover the address, since the nearest
// exported one may be of another function.
Meaning meaning_of(void* address) {
  Dl_info info{};
  const ElfW(Sym)* symbol = nullptr;
  if (dladdr1(address, &info, reinterpret_cast<void**>(const_cast<ElfW(Sym)**>(&symbol)), RTLD_DL_SYMENT) ==
          0 ||
      info.dli_sname == nullptr || symbol == nullptr)
    return Meaning::kNone;
  const auto start = reinterpret_cast<uintptr_t>(info.dli_saddr);
  if (reinterpret_cast<uintptr_t>(address) >= start + symbol->st_size) return Meaning::kNone;
  const std::string_view name = info.dli_sname;
  if (name.find("native") == std::string_view::npos && name.find("_ops") == std::string_view::npos)
    return Meaning::kNone;
  if (name.find("is_nonzero") != std::string_view::npos) return Meaning::kValue;  // unlike nonzero
  if (contains_any(name, kShapeOperators)) return Meaning::kShape;
  return contains_any(name, kValueOperators) ? Meaning::kValue : Meaning::kNone;
}

// By the callers: an operator that sizes its result reads through the same copy as .item() does.
ReadKind kind_of_this_read(uint64_t bytes) {
  thread_local std::unordered_map<void*, Meaning> known;
  void* frames[kMostFrames];
  const int count = backtrace(frames, kMostFrames);
  ReadKind kind = bytes > SPILLWAY_SIMULATOR_SMALL_READ ? ReadKind::kBulk : ReadKind::kCopy;
  for (int i = 0; i < count; ++i) {
    const auto [entry, added] = known.try_emplace(frames[i], Meaning::kNone);
    if (added) entry->second = meaning_of(frames[i]);
    if (entry->second == Meaning::kShape) return ReadKind::kShape;
    if (entry->second == Meaning::kValue) kind = ReadKind::kValue;
  }
  return kind;
}

struct Numbers {
  uint64_t depth = 0, seen = 0;
};
thread_local Numbers numbers;

void note(ReadKind kind, uint64_t bytes) {
  State& state = rehearsal::state();
  const auto context = gather_stack();
  const Locked lock(state.mutex);
  Read& read = state.reads[{state.sites.of(context), kind}];
  ++read.count;
  read.bytes += bytes;
  state.dirty = true;
}

void seen(void*, CUdeviceptr, uint64_t bytes) {
  if (state().forked) return;
  const bool is_number = numbers.depth > 0 && bytes <= SPILLWAY_SIMULATOR_SMALL_READ;
  if (is_number) ++numbers.seen;
  note(is_number ? ReadKind::kNumber : kind_of_this_read(bytes), bytes);
}

}  // namespace

void watch_reads() {
  if (simulator() != nullptr && simulator()->mode() == SPILLWAY_SIMULATOR_NULL)
    simulator()->observe_host_reads(seen, nullptr);
}

void begin_numbers() {
  if (numbers.depth++ == 0) numbers.seen = 0;
}

uint64_t end_numbers() {
  --numbers.depth;
  return numbers.seen;
}

void note_decision() {
  if (!state().forked) note(ReadKind::kBranch, 0);
}

}  // namespace spillway::rehearsal
