// The smallest card on which an allocator completes a recorded stream of requests, and what its driver calls
// cost there. On the simulated driver, with the latencies of its configuration. One allocator a process:
// `run` compares them.
//
//   bench_capacity --allocator native|spillway STREAM... [--at BYTES,...]
//
// Prints a JSON object a stream: live, the smallest capacity, and for it and each capacity of --at whether
// the stream completes, driver calls and their stall, in all and over the last ten steps.
// PYTORCH_CUDA_ALLOC_CONF chooses expandable segments for the native allocator.
#include <ATen/Context.h>
#include <c10/cuda/CUDACachingAllocator.h>
#include <c10/cuda/CUDAFunctions.h>
#include <c10/cuda/CUDAStream.h>
#include <dlfcn.h>

#include <cinttypes>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include "benchmarks/streams/stream.h"
#include "spillway/driver/simulator_control.h"
#include "spillway/libtorch/allocator.h"

namespace {

namespace native = c10::cuda::CUDACachingAllocator;
using spillway::benchmark::Operation;
using spillway::benchmark::Stream;

constexpr size_t kPage = size_t{2} << 20;
constexpr size_t kLastSteps = 10;

struct Trial {
  bool completes = false;
  uint64_t calls = 0, stall_ns = 0;            // of the whole stream
  uint64_t last_calls = 0, last_stall_ns = 0;  // of its last steps
};

class Bench {
 public:
  Bench(native::CUDAAllocator& allocator, const SpillwaySimulatorControl& control)
      : allocator_(allocator), control_(control) {
    for (int i = 0; i < 32; ++i) streams_.push_back(c10::cuda::getStreamFromPool(false, 0).stream());
    streams_.insert(streams_.begin(), c10::cuda::getDefaultCUDAStream(0).stream());
  }

  Trial run(const Stream& stream, size_t capacity) {
    control_.set_capacity(0, capacity);
    blocks_.assign(stream.ids, nullptr);
    Trial trial;
    const SpillwaySimulatorCounts start = counts();
    SpillwaySimulatorCounts before_last = start;
    const size_t steps = stream.steps.size();
    const size_t last = steps > kLastSteps ? stream.steps[steps - kLastSteps - 1] : 0;
    try {
      for (size_t i = 0; i < stream.operations.size(); ++i) {
        if (i == last) before_last = counts();
        perform(stream.operations[i]);
      }
      trial.completes = true;
    } catch (const c10::OutOfMemoryError&) {
      trial.completes = false;
    }
    const SpillwaySimulatorCounts end = counts();
    trial.calls = end.driver_calls - start.driver_calls;
    trial.stall_ns = end.driver_stall_ns - start.driver_stall_ns;
    trial.last_calls = end.driver_calls - before_last.driver_calls;
    trial.last_stall_ns = end.driver_stall_ns - before_last.driver_stall_ns;
    for (void*& block : blocks_) {
      if (block != nullptr) allocator_.raw_delete(block);
      block = nullptr;
    }
    allocator_.emptyCache({0, 0});
    return trial;
  }

  // By bisection in pages; what it returns was seen to complete, and a page less was seen not to.
  size_t smallest(const Stream& stream, size_t live) {
    size_t fails = live / kPage - 1, completes = 4 * live / kPage;
    while (completes - fails > 1) {
      const size_t middle = fails + (completes - fails) / 2;
      (run(stream, middle * kPage).completes ? completes : fails) = middle;
    }
    return completes * kPage;
  }

 private:
  SpillwaySimulatorCounts counts() const {
    SpillwaySimulatorCounts out{};
    control_.counts(&out);
    return out;
  }

  void perform(const Operation& operation) {
    void*& block = blocks_[operation.id];
    if (operation.bytes != 0) {
      block = allocator_.raw_alloc_with_stream(operation.bytes, streams_[operation.stream % streams_.size()]);
    } else {
      allocator_.raw_delete(block);
      block = nullptr;
    }
  }

  native::CUDAAllocator& allocator_;
  const SpillwaySimulatorControl& control_;
  std::vector<cudaStream_t> streams_;
  std::vector<void*> blocks_;
};

void print(const char* key, const Trial& trial, size_t capacity) {
  std::printf("%s{\"capacity\": %zu, \"completes\": %s, \"calls\": %" PRIu64
              ", \"stall_us\": %.1f, \"last_calls\": %" PRIu64 ", \"last_stall_us\": %.1f}",
              key, capacity, trial.completes ? "true" : "false", trial.calls, double(trial.stall_ns) / 1e3,
              trial.last_calls, double(trial.last_stall_ns) / 1e3);
}

void measure(Bench& bench, const std::string& path, const Stream& stream, const std::vector<size_t>& at) {
  const size_t live = spillway::benchmark::most_live(stream);
  const size_t smallest = bench.smallest(stream, live);
  std::printf("{\"stream\": \"%s\", \"live\": %zu, \"steps\": %zu, \"requests\": %zu, ", path.c_str(), live,
              stream.steps.size(), stream.ids);
  print("\"smallest\": ", bench.run(stream, smallest), smallest);
  std::printf(", \"at\": [");
  for (size_t i = 0; i < at.size(); ++i) print(i == 0 ? "" : ", ", bench.run(stream, at[i]), at[i]);
  std::printf("]}\n");
  std::fflush(stdout);
}

const SpillwaySimulatorControl* find_control() {
  void* driver = ::dlopen("libcuda.so.1", RTLD_NOW);
  void* found = driver == nullptr ? nullptr : ::dlsym(driver, "spillway_simulator_control");
  return found == nullptr ? nullptr : reinterpret_cast<SpillwaySimulatorControlFunction>(found)();
}

int usage() {
  std::fprintf(stderr, "usage: bench_capacity --allocator native|spillway STREAM... [--at BYTES,...]\n");
  return 2;
}

}  // namespace

int main(int argc, char** argv) {
  std::string allocator;
  std::vector<std::string> paths;
  std::vector<size_t> at;
  for (int i = 1; i < argc; ++i) {
    const std::string word = argv[i];
    if (word == "--allocator" && i + 1 < argc) {
      allocator = argv[++i];
    } else if (word == "--at" && i + 1 < argc) {
      std::istringstream values(argv[++i]);
      for (std::string value; std::getline(values, value, ',');)
        at.push_back(std::strtoull(value.c_str(), nullptr, 10));
    } else if (word.starts_with("--")) {
      return usage();
    } else {
      paths.push_back(word);
    }
  }
  if ((allocator != "native" && allocator != "spillway") || paths.empty()) return usage();
  const SpillwaySimulatorControl* control = find_control();
  if (control == nullptr) {
    std::fprintf(
        stderr,
        "bench_capacity: runs on the simulated driver only: spillway simulate ... -- bench_capacity\n");
    return 1;
  }
  if (allocator == "spillway" && spillway_torch_install() != 0) {
    std::fprintf(stderr, "bench_capacity: %s\n", spillway_torch_error());
    return 1;
  }
  at::globalContext().lazyInitDevice(c10::DeviceType::CUDA);
  c10::cuda::set_device(0, true);
  Bench bench(*native::allocator.load(), *control);
  for (const std::string& path : paths) {
    Stream stream;
    if (const std::string wrong = spillway::benchmark::read_stream(path, &stream); !wrong.empty()) {
      std::fprintf(stderr, "bench_capacity: %s\n", wrong.c_str());
      return 1;
    }
    measure(bench, path, stream, at);
  }
  return 0;
}
