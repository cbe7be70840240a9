// What an operator on the simulated card costs beside the same operator on the CPU: nanoseconds and their
// difference. Run under `spillway simulate --values compute`. Prints a table and a line of JSON.
#include <ATen/Parallel.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/_foreach_add.h>
#include <ATen/ops/add.h>
#include <ATen/ops/ones.h>
#include <c10/core/GradMode.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

namespace {

constexpr int kRounds = 15;

// The fastest of the rounds, in ns per call: what else runs on the machine only ever adds.
template <class Function>
double fastest(int calls, Function& function) {
  double best = 1e18;
  for (int round = 0; round < kRounds; ++round) {
    const auto start = std::chrono::steady_clock::now();
    for (int i = 0; i < calls; ++i) function();
    const std::chrono::duration<double, std::nano> spent = std::chrono::steady_clock::now() - start;
    best = std::min(best, spent.count() / calls);
  }
  return best;
}

struct Result {
  std::string name;
  double cpu_ns, card_ns;
};

template <class Make>
Result measure(const char* name, int calls, Make make) {
  auto on_cpu = make(at::kCPU);
  auto on_card = make(at::kCUDA);
  return {name, fastest(calls, on_cpu), fastest(calls, on_card)};
}

at::Tensor ones(int64_t count, at::DeviceType device) {
  return at::ones({count}, at::TensorOptions().device(device));
}

std::vector<Result> measure_all(int calls) {
  std::vector<Result> results;
  results.push_back(measure("add, 16 elements", calls, [](at::DeviceType device) {
    return [a = ones(16, device), b = ones(16, device)] { return at::add(a, b); };
  }));
  results.push_back(measure("add in place, 16 elements", calls, [](at::DeviceType device) {
    return [a = ones(16, device), b = ones(16, device)]() mutable { a.add_(b); };
  }));
  results.push_back(measure("add, 1 Mi elements", std::max(1, calls / 1000), [](at::DeviceType device) {
    return [a = ones(1 << 20, device), b = ones(1 << 20, device)] { return at::add(a, b); };
  }));
  results.push_back(measure("add to 100 tensors", std::max(1, calls / 100), [](at::DeviceType device) {
    return [list = std::vector<at::Tensor>(100, ones(16, device))] { return at::_foreach_add(list, 1.0); };
  }));
  return results;
}

}  // namespace

int main(int argc, char** argv) {
  const int calls = argc > 1 ? std::max(1, std::atoi(argv[1])) : 20000;
  const c10::NoGradGuard no_grad;
  at::set_num_threads(1);
  const std::vector<Result> results = measure_all(calls);
  std::printf("%-28s %12s %12s %12s\n", "operator", "CPU ns", "card ns", "added ns");
  for (const Result& r : results) {
    std::printf("%-28s %12.0f %12.0f %12.0f\n", r.name.c_str(), r.cpu_ns, r.card_ns, r.card_ns - r.cpu_ns);
  }
  std::printf("{\"benchmark\": \"kernels\", \"results\": [");
  for (size_t i = 0; i < results.size(); ++i) {
    std::printf("%s{\"operator\": \"%s\", \"cpu_ns\": %.0f, \"card_ns\": %.0f}", i == 0 ? "" : ", ",
                results[i].name.c_str(), results[i].cpu_ns, results[i].card_ns);
  }
  std::printf("]}\n");
  return 0;
}
