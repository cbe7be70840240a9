// What an allocation and its free cost through LibTorch's interface: Spillway ÷ PyTorch's native allocator,
// both in this process, on the same (simulated or real) card, with Spillway's trace on. Pairs of runs
// alternate; the ratio has a 95% interval over the pairs. Bars: 0.35 in each case, 0.25 on the recorded step.
//
//   bench_hot_path [--quick] [--json FILE] [--stream FILE]     a stream is what benchmarks/streams/record.py
//   writes
#include <ATen/Context.h>
#include <c10/cuda/CUDACachingAllocator.h>
#include <c10/cuda/CUDAFunctions.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "benchmarks/streams/stream.h"
#include "spillway/libtorch/allocator.h"

namespace {

namespace native = c10::cuda::CUDACachingAllocator;
using Clock = std::chrono::steady_clock;
using CudaAllocator = native::CUDAAllocator;
using spillway::benchmark::Operation;
using spillway::benchmark::Stream;

struct Settings {
  long operations = 400'000;
  int pairs = 9;
  std::string json, stream;
};

double ns_since(Clock::time_point start) {
  return std::chrono::duration<double, std::nano>(Clock::now() - start).count();
}

double same_size(CudaAllocator& allocator, size_t bytes, long count) {
  for (int i = 0; i < 1000; ++i) allocator.raw_delete(allocator.raw_alloc(bytes));
  const auto start = Clock::now();
  for (long i = 0; i < count; ++i) allocator.raw_delete(allocator.raw_alloc(bytes));
  return ns_since(start) / double(count);
}

// 1000 live blocks of 512 B to 64 MiB, log-uniform; each operation frees one and allocates another.
double mixed_sizes(CudaAllocator& allocator, long count) {
  constexpr size_t kLive = 1000;
  std::mt19937_64 random(7);
  std::uniform_real_distribution<double> size(std::log(512.0), std::log(64.0 * 0x1p20));
  std::vector<size_t> sizes(static_cast<size_t>(count) + kLive), victims(static_cast<size_t>(count));
  for (size_t& bytes : sizes) bytes = static_cast<size_t>(std::exp(size(random)));
  for (size_t& victim : victims) victim = random() % kLive;
  std::vector<void*> live(kLive);
  for (size_t i = 0; i < kLive; ++i) live[i] = allocator.raw_alloc(sizes[static_cast<size_t>(count) + i]);
  auto start = Clock::now();
  const size_t warm = victims.size() / 2;
  for (size_t i = 0; i < victims.size(); ++i) {
    if (i == warm) start = Clock::now();
    allocator.raw_delete(live[victims[i]]);
    live[victims[i]] = allocator.raw_alloc(sizes[i]);
  }
  const double ns = ns_since(start) / double(victims.size() - warm);
  for (void* block : live) allocator.raw_delete(block);
  return ns;
}

// Wall time over all pairs of all threads.
double threads_same_size(CudaAllocator& allocator, int count, size_t bytes, long each) {
  std::atomic<int> ready{0};
  std::atomic<bool> go{false};
  std::vector<std::thread> threads;
  threads.reserve(static_cast<size_t>(count));
  for (int i = 0; i < count; ++i) {
    threads.emplace_back([&] {
      c10::cuda::set_device(0);
      for (int k = 0; k < 100; ++k) allocator.raw_delete(allocator.raw_alloc(bytes));
      ready.fetch_add(1);
      while (!go.load()) std::this_thread::yield();
      for (long k = 0; k < each; ++k) allocator.raw_delete(allocator.raw_alloc(bytes));
    });
  }
  while (ready.load() != count) std::this_thread::yield();
  const auto start = Clock::now();
  go = true;
  for (std::thread& thread : threads) thread.join();
  return ns_since(start) / double(count * each);
}

void replay(CudaAllocator& allocator, const Stream& stream, size_t from, size_t to,
            std::vector<void*>* blocks) {
  for (size_t i = from; i < to; ++i) {
    const Operation& operation = stream.operations[i];
    if (operation.bytes != 0) {
      (*blocks)[operation.id] = allocator.raw_alloc(operation.bytes);
    } else {
      allocator.raw_delete((*blocks)[operation.id]);
      (*blocks)[operation.id] = nullptr;
    }
  }
}

// The recorded program up to its last step, and then that step again and again, with fresh caches first.
double recorded_step(CudaAllocator& allocator, const Stream& stream, long repeats, size_t* reserved) {
  const size_t last_step = stream.steps[stream.steps.size() - 2], end = stream.steps.back();
  allocator.emptyCache({0, 0});
  std::vector<void*> blocks(stream.ids);
  replay(allocator, stream, 0, last_step, &blocks);
  const std::vector<void*> before = blocks;
  double total = 0;
  size_t frees = 0;
  for (long i = 0; i < repeats; ++i) {
    const auto start = Clock::now();
    replay(allocator, stream, last_step, end, &blocks);
    total += ns_since(start);
    // What the step leaves behind makes room for its repetition; what it freed of earlier steps stays freed.
    for (size_t id = 0; id < blocks.size(); ++id) {
      if (blocks[id] != nullptr && before[id] == nullptr) {
        allocator.raw_delete(blocks[id]);
        blocks[id] = nullptr;
      }
    }
  }
  for (size_t i = last_step; i < end; ++i) frees += stream.operations[i].bytes == 0;
  *reserved = static_cast<size_t>(allocator.getDeviceStats(0).reserved_bytes[0].peak);
  for (void* block : blocks) allocator.raw_delete(block);
  allocator.emptyCache({0, 0});
  return total / double(repeats) / double(std::max<size_t>(frees, 1));
}

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  const size_t half = values.size() / 2;
  return values.size() % 2 == 1 ? values[half] : (values[half - 1] + values[half]) / 2;
}

struct Row {
  std::string name;
  double native_ns = 0, spillway_ns = 0, ratio = 0, low = 0, high = 0, bar = 0.35;
};

// The ratio of the pairs: geometric mean and its 95% interval (normal approximation).
Row measure(const std::string& name, double bar, int pairs, CudaAllocator& stock, CudaAllocator& ours,
            const std::function<double(CudaAllocator&)>& run) {
  std::vector<double> native_ns, spillway_ns, logs;
  for (int pair = 0; pair < pairs; ++pair) {
    if (pair % 2 == 0) native_ns.push_back(run(stock));
    spillway_ns.push_back(run(ours));
    if (pair % 2 != 0) native_ns.push_back(run(stock));
    logs.push_back(std::log(spillway_ns.back() / native_ns.back()));
  }
  const auto count = double(logs.size());
  double mean = 0, variance = 0;
  for (const double value : logs) mean += value / count;
  for (const double value : logs) variance += (value - mean) * (value - mean) / std::max(1.0, count - 1);
  const double half = 1.96 * std::sqrt(variance / count);
  return {name,
          median(native_ns),
          median(spillway_ns),
          std::exp(mean),
          std::exp(mean - half),
          std::exp(mean + half),
          bar};
}

void print(const std::vector<Row>& rows) {
  std::printf("%-28s %12s %12s %22s %6s\n", "ns per alloc+free", "native", "spillway", "ratio (95%)", "bar");
  for (const Row& row : rows)
    std::printf("%-28s %12.1f %12.1f %7.3f (%5.3f - %5.3f) %6.2f %s\n", row.name.c_str(), row.native_ns,
                row.spillway_ns, row.ratio, row.low, row.high, row.bar,
                row.ratio <= row.bar ? "met" : "missed");
}

bool write_json(const std::string& path, const std::vector<Row>& rows) {
  std::ofstream out(path);
  out << "{\"benchmark\": \"hot_path\", \"rows\": [";
  const char* separator = "";
  for (const Row& row : rows) {
    out << separator << "\n  {\"case\": \"" << row.name << "\", \"native_ns\": " << row.native_ns
        << ", \"spillway_ns\": " << row.spillway_ns << ", \"ratio\": " << row.ratio
        << ", \"low\": " << row.low << ", \"high\": " << row.high << ", \"bar\": " << row.bar << "}";
    separator = ",";
  }
  out << "\n]}\n" << std::flush;
  return static_cast<bool>(out);
}

bool parse(int argc, char** argv, Settings* settings) {
  for (int i = 1; i < argc; ++i) {
    const std::string flag = argv[i];
    if (flag == "--quick") {
      settings->operations = 2000;
      settings->pairs = 2;
    } else if ((flag == "--json" || flag == "--stream") && i + 1 < argc) {
      (flag == "--json" ? settings->json : settings->stream) = argv[++i];
    } else {
      std::fprintf(stderr, "usage: bench_hot_path [--quick] [--json FILE] [--stream FILE]\n");
      return false;
    }
  }
  return true;
}

}  // namespace

int main(int argc, char** argv) {
  Settings settings;
  Stream stream;
  if (!parse(argc, argv, &settings)) return 2;
  if (!settings.stream.empty()) {
    std::string wrong = spillway::benchmark::read_stream(settings.stream, &stream);
    if (wrong.empty() && stream.steps.size() < 2) wrong = settings.stream + ": at least two steps are needed";
    if (!wrong.empty()) {
      std::fprintf(stderr, "bench_hot_path: %s\n", wrong.c_str());
      return 2;
    }
  }
  const std::string trace =
      std::filesystem::temp_directory_path() / ("bench_hot_path_" + std::to_string(::getpid()) + ".spill");
  ::setenv("SPILLWAY_TRACE", trace.c_str(), 1);
  CudaAllocator* stock = native::allocator.load();
  if (spillway_torch_install() != 0) {
    std::fprintf(stderr, "bench_hot_path: %s\n", spillway_torch_error());
    return 1;
  }
  at::globalContext().lazyInitDevice(c10::DeviceType::CUDA);
  CudaAllocator* ours = native::allocator.load();
  c10::cuda::set_device(0, true);

  const auto run = [&](const std::string& name, double bar,
                       const std::function<double(CudaAllocator&)>& what) {
    Row row = measure(name, bar, settings.pairs, *stock, *ours, what);
    stock->emptyCache({0, 0});
    ours->emptyCache({0, 0});
    return row;
  };
  const long count = settings.operations;
  std::vector<Row> rows;
  rows.push_back(run("same 1 MiB", 0.35, [&](CudaAllocator& it) { return same_size(it, 1 << 20, count); }));
  rows.push_back(run("same 512 B", 0.35, [&](CudaAllocator& it) { return same_size(it, 512, count); }));
  rows.push_back(
      run("512 B - 64 MiB, 1000 live", 0.35, [&](CudaAllocator& it) { return mixed_sizes(it, count / 2); }));
  rows.push_back(run("4 threads, 1 MiB", 0.35,
                     [&](CudaAllocator& it) { return threads_same_size(it, 4, 1 << 20, count / 4); }));
  if (!stream.operations.empty()) {
    size_t native_reserved = 0, spillway_reserved = 0;
    rows.push_back(run("recorded step", 0.25, [&](CudaAllocator& it) {
      return recorded_step(it, stream, std::max(1L, count / 10000),
                           &it == stock ? &native_reserved : &spillway_reserved);
    }));
    std::printf("reserved for the recorded step: native %.0f MiB, spillway %.0f MiB\n",
                double(native_reserved) / 0x1p20, double(spillway_reserved) / 0x1p20);
  }
  std::filesystem::remove(trace);
  print(rows);
  if (!settings.json.empty() && !write_json(settings.json, rows)) {
    std::fprintf(stderr, "bench_hot_path: cannot write %s\n", settings.json.c_str());
    return 1;
  }
  return 0;
}
