// The smallest card on which an allocator completes a recorded stream of requests, and what its driver calls
// cost there. On the simulated driver, with the latencies of its configuration. One allocator a process:
// `run` compares them.
//
//   bench_capacity --allocator native|spillway STREAM... [--search] [--at BYTES,...]
//
// Prints a JSON object a stream: live, the smallest capacity, and for it and each capacity of --at whether
// the stream completes, the driver calls by kind and their stall, in all and over the last ten steps, and the
// most memory that was held. Without --search only the capacities of --at are tried.
// PYTORCH_CUDA_ALLOC_CONF chooses expandable segments for the native allocator.
#include <ATen/Context.h>
#include <c10/cuda/CUDACachingAllocator.h>
#include <c10/cuda/CUDAFunctions.h>
#include <c10/cuda/CUDAStream.h>
#include <dlfcn.h>

#include <array>
#include <cinttypes>
#include <cstdio>
#include <cstdlib>
#include <numeric>
#include <string>
#include <vector>

#include "benchmarks/streams/stream.h"
#include "driver/simulator_control.h"
#include "spillway/libtorch/allocator.h"

namespace {

namespace native = c10::cuda::CUDACachingAllocator;
using spillway::benchmark::Operation;
using spillway::benchmark::Stream;

constexpr size_t kPage = size_t{2} << 20;
constexpr size_t kLastSteps = 10;
constexpr std::array kKinds = {"cuMemCreate",  "cuMemMap",      "cuMemSetAccess", "cuMemUnmap",
                               "cuMemRelease", "cuMemAlloc_v2", "cuMemFree_v2"};

// Driver calls that take or give memory, and their stall.
struct Cost {
  std::array<uint64_t, kKinds.size()> calls{};
  uint64_t stall_ns = 0;

  uint64_t all() const { return std::accumulate(calls.begin(), calls.end(), uint64_t{0}); }
  Cost operator-(const Cost& other) const {
    Cost out{calls, stall_ns - other.stall_ns};
    for (size_t i = 0; i < calls.size(); ++i) out.calls[i] -= other.calls[i];
    return out;
  }
};

struct Trial {
  bool completes = false;
  Cost whole, last;  // of the whole stream, of its last steps
  uint64_t most_held = 0;
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
    allocator_.resetPeakStats(0);
    const Cost start = cost();
    Cost before_last = start;
    const size_t steps = stream.steps.size();
    const size_t last = steps > kLastSteps ? stream.steps[steps - kLastSteps - 1] : 0;
    try {
      for (size_t i = 0; i < stream.operations.size(); ++i) {
        if (i == last) before_last = cost();
        perform(stream.operations[i]);
      }
      trial.completes = true;
    } catch (const c10::OutOfMemoryError&) {
      trial.completes = false;
    }
    const Cost end = cost();
    trial.whole = end - start;
    trial.last = end - before_last;
    trial.most_held = static_cast<uint64_t>(allocator_.getDeviceStats(0).reserved_bytes[0].peak);
    for (void*& block : blocks_) {
      if (block != nullptr) allocator_.raw_delete(block);
      block = nullptr;
    }
    allocator_.emptyCache({0, 0});
    return trial;
  }

  // By bisection in pages; what it returns was seen to complete, and a page less was seen not to.
  size_t smallest(const Stream& stream, size_t live) {
    size_t fails = live / kPage - 1, completes = 2 * live / kPage + 1;
    while (!run(stream, completes * kPage).completes) {
      fails = completes;
      completes *= 2;
    }
    while (completes - fails > 1) {
      const size_t middle = fails + (completes - fails) / 2;
      (run(stream, middle * kPage).completes ? completes : fails) = middle;
    }
    return completes * kPage;
  }

 private:
  Cost cost() const {
    SpillwaySimulatorCounts counts{};
    control_.counts(&counts);
    Cost out;
    out.stall_ns = counts.driver_stall_ns;
    for (size_t i = 0; i < kKinds.size(); ++i) out.calls[i] = control_.calls(kKinds[i]);
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

void print(const char* key, const Cost& cost) {
  std::printf("\"%s\": {\"stall_us\": %.1f, \"calls\": %" PRIu64, key, double(cost.stall_ns) / 1e3,
              cost.all());
  for (size_t i = 0; i < kKinds.size(); ++i) std::printf(", \"%s\": %" PRIu64, kKinds[i], cost.calls[i]);
  std::printf("}");
}

void print(const Trial& trial, size_t capacity) {
  std::printf("{\"capacity\": %zu, \"completes\": %s, \"most_held\": %" PRIu64 ", ", capacity,
              trial.completes ? "true" : "false", trial.most_held);
  print("whole", trial.whole);
  std::printf(", ");
  print("last", trial.last);
  std::printf("}");
}

void measure(Bench& bench, const std::string& path, const Stream& stream, bool search,
             const std::vector<size_t>& at) {
  const size_t live = spillway::benchmark::most_live(stream);
  std::printf("{\"stream\": \"%s\", \"live\": %zu, \"steps\": %zu, \"streams\": %zu, \"requests\": %zu, ",
              path.c_str(), live, stream.steps.size(), stream.streams, stream.ids);
  if (search) {
    const size_t smallest = bench.smallest(stream, live);
    std::printf("\"smallest\": ");
    print(bench.run(stream, smallest), smallest);
    std::printf(", ");
  }
  std::printf("\"at\": [");
  for (size_t i = 0; i < at.size(); ++i) {
    std::printf("%s", i == 0 ? "" : ", ");
    print(bench.run(stream, at[i]), at[i]);
  }
  std::printf("]}\n");
  std::fflush(stdout);
}

const SpillwaySimulatorControl* find_control() {
  void* driver = ::dlopen("libcuda.so.1", RTLD_NOW);
  void* found = driver == nullptr ? nullptr : ::dlsym(driver, "spillway_simulator_control");
  const auto* control =
      found == nullptr ? nullptr : reinterpret_cast<SpillwaySimulatorControlFunction>(found)();
  return control != nullptr && control->size >= sizeof *control ? control : nullptr;
}

int usage() {
  std::fprintf(stderr,
               "usage: bench_capacity --allocator native|spillway STREAM... [--search] [--at BYTES,...]\n");
  return 2;
}

}  // namespace

int main(int argc, char** argv) {
  std::string allocator;
  std::vector<std::string> paths;
  std::vector<size_t> at;
  bool search = false;
  for (int i = 1; i < argc; ++i) {
    const std::string word = argv[i];
    if (word == "--allocator" && i + 1 < argc) {
      allocator = argv[++i];
    } else if (word == "--at" && i + 1 < argc) {
      std::istringstream values(argv[++i]);
      for (std::string value; std::getline(values, value, ',');)
        at.push_back(std::strtoull(value.c_str(), nullptr, 10));
    } else if (word == "--search") {
      search = true;
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
    measure(bench, path, stream, search, at);
  }
  return 0;
}
