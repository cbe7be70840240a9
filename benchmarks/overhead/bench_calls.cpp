// What a hook adds to a call of the driver: the same function through the preloaded library and past it, in
// turns, the fastest of the rounds of each. Run under `spillway run`. Prints JSON: ns by function.
#include <cuda.h>
#include <dlfcn.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>

namespace {

constexpr int kRounds = 41, kCalls = 100'000;

using LookUp = void* (*)(void* library, const char* name);

template <class Call>
double ns_per_call(Call call) {
  const auto start = std::chrono::steady_clock::now();
  for (int i = 0; i < kCalls; ++i) call();
  const std::chrono::duration<double, std::nano> spent = std::chrono::steady_clock::now() - start;
  return spent.count() / kCalls;
}

// `call` calls the function that it is given.
template <class Function, class Call>
double added_ns(void* library, LookUp unhooked, const char* name, Call call) {
  const auto hooked = reinterpret_cast<Function>(dlsym(library, name));
  const auto real = reinterpret_cast<Function>(unhooked(library, name));
  if (hooked == nullptr || real == nullptr || hooked == real) {
    std::fprintf(stderr, "bench_calls: %s is not hooked: run it under 'spillway run'\n", name);
    std::exit(1);
  }
  double with = 1e18, without = 1e18;
  for (int round = 0; round < kRounds; ++round) {
    with = std::min(with, ns_per_call([&] { call(hooked); }));
    without = std::min(without, ns_per_call([&] { call(real); }));
  }
  return with - without;
}

}  // namespace

int main() {
  void* library = dlopen("libcuda.so.1", RTLD_NOW);
  const auto unhooked = reinterpret_cast<LookUp>(dlsym(RTLD_DEFAULT, "spillway_unhooked_dlsym"));
  if (library == nullptr || unhooked == nullptr) {
    std::fprintf(stderr, "bench_calls: no driver, or not under 'spillway run'\n");
    return 1;
  }
  reinterpret_cast<decltype(&cuInit)>(dlsym(library, "cuInit"))(0);
  const double version =
      added_ns<decltype(&cuDriverGetVersion)>(library, unhooked, "cuDriverGetVersion", [](auto function) {
        int version = 0;
        function(&version);
      });
  const double launch = added_ns<decltype(&cuLaunchKernel)>(
      library, unhooked, "cuLaunchKernel",
      [](auto function) { function(nullptr, 1, 1, 1, 1, 1, 1, 0, nullptr, nullptr, nullptr); });
  std::printf("{\"cuDriverGetVersion\": %.2f, \"cuLaunchKernel\": %.2f}\n", version, launch);
  return 0;
}
