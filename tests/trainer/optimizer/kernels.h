// What tests of the optimizer's kernels share.
#pragma once
#include <gtest/gtest.h>

#include <iterator>
#include <regex>
#include <stdexcept>
#include <string>

#include "trainer/runtime/device_kernel.h"

namespace spillway::trainer {

inline RuntimeCompiler compiler() {
  std::string error;
  const auto found = RuntimeCompiler::load(&error);
  if (!found) throw std::runtime_error(error);
  return *found;
}

inline const driver::Table& table() {
  driver::LoadError error;
  const driver::Table* found = driver::process_table(&error);
  if (found == nullptr) throw std::runtime_error(error.text);
  return *found;
}

// A kernel as the compiler leaves it for a kind of card. Errors: std::runtime_error.
class Compiled {
 public:
  Compiled(const KernelCode& code, int capability) {
    std::string error;
    auto binary = compiler().compile(code.source, capability, &error);
    if (!binary) throw std::runtime_error(error);
    binary_ = std::move(*binary);
  }

  const std::string& cubin() const { return binary_.cubin; }
  const std::string& log() const { return binary_.log; }
  int registers() const {
    std::smatch match;
    return std::regex_search(binary_.log, match, std::regex("Used ([0-9]+) registers")) ? std::stoi(match[1])
                                                                                        : -1;
  }
  // How often its instructions match.
  int64_t times(const std::string& pattern) const {
    const std::regex regex(pattern);
    return std::distance(std::sregex_iterator(binary_.ptx.begin(), binary_.ptx.end(), regex), {});
  }

 private:
  DeviceBinary binary_;
};
inline constexpr const char* kNotAsAProcessor = "\\.ftz|\\.approx|fma\\.|\\bmad\\.[a-z.]*f32";

// The last launch of a driver whose cuLaunchKernel is `keep_launch`.
template <typename Argument>
struct KeptLaunch {
  unsigned grid = 0, threads = 0, shared = 0;
  Argument argument{};
};
template <typename Argument>
inline KeptLaunch<Argument> kept_launch;
template <typename Argument>
CUresult keep_launch(CUfunction, unsigned grid, unsigned, unsigned, unsigned threads, unsigned, unsigned,
                     unsigned shared, CUstream, void** arguments, void**) {
  kept_launch<Argument> = {grid, threads, shared, *static_cast<Argument*>(arguments[0])};
  return CUDA_SUCCESS;
}

}  // namespace spillway::trainer
