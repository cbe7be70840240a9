#include "simulator/driver/work/uncomputed.h"

#include <cxxabi.h>

#include <cstdio>
#include <cstdlib>
#include <memory>

#include "simulator/driver/machine/state.h"

namespace spillway::simulator {
namespace {

constexpr size_t kMostNamed = 8;

// "at::native::vectorized_elementwise_kernel<4, ...", as long as a line of a terminal.
std::string readable(const char* mangled) {
  constexpr size_t kLongest = 100;
  int status = 0;
  const std::unique_ptr<char, decltype(&std::free)> name(
      abi::__cxa_demangle(mangled, nullptr, nullptr, &status), &std::free);
  std::string text = name == nullptr ? mangled : name.get();
  if (text.starts_with("void ")) text.erase(0, 5);
  if (text.size() > kLongest) text.replace(kLongest, std::string::npos, "...");
  return text;
}

void say(const std::string& kernel, size_t before) {
  if (before > kMostNamed) return;
  std::fprintf(stderr, "spillway simulator: %s %s: no CPU kernel stood in for it, its output is undefined\n",
               before == kMostNamed ? "more kernels, the first is" : "kernel", kernel.c_str());
}

}  // namespace

void note_if_uncomputed(const char* kernel) {
  Machine& sim = machine();
  if (!sim.config.compute || stand_in(0) > 0) return;
  const std::string name = readable(kernel);
  const size_t before = sim.uncomputed.size();
  const auto [entry, added] = sim.uncomputed.try_emplace(name, 0);
  ++entry->second;
  if (added) say(name, before);
}

int stand_in(int change) {
  thread_local int depth = 0;
  return depth += change;
}

}  // namespace spillway::simulator
