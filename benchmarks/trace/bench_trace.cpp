// What one trace record costs: ns of CPU time a record with 1 and 4 threads, beside a plain 64-byte memcpy
// into memory of a ring's size. Pairs of runs alternate; the ratio has a 95% interval over the pairs. The bar
// is 10 ns a record.
//
//   bench_trace [--quick] [--json FILE]
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <ctime>
#include <filesystem>
#include <fstream>
#include <string>
#include <thread>
#include <vector>

#include "trace/writer.h"

namespace {

using spillway::trace::Options;
using spillway::trace::Record;
using spillway::trace::Trace;

constexpr double kBarNs = 10;
constexpr uint64_t kRingRecords = Options{}.records_per_ring;

struct Settings {
  uint64_t records = 4'000'000;
  int pairs = 15;
  std::string json;
};

// CPU time: other programs on the machine do not count.
double thread_ns() {
  timespec now{};
  ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) * 1e9 + static_cast<double>(now.tv_nsec);
}

Record record_of(uint64_t i) {
  Record record;
  record.order = i;
  record.address = i << 9;
  record.bytes = i * 512;
  record.requested = i;
  record.stream = i & 3;
  record.kind = spillway::trace::Kind::kAllocate;
  return record;
}

template <typename Store>
double measure(int threads, uint64_t records, const Store& make_store) {
  std::vector<double> ns(static_cast<size_t>(threads));
  std::vector<std::thread> running;
  running.reserve(ns.size());
  for (int t = 0; t < threads; ++t) {
    running.emplace_back([&, t] {
      auto store = make_store();
      for (uint64_t i = 0; i < kRingRecords; ++i) store(record_of(i));  // the first lap touches the pages
      const double start = thread_ns();
      for (uint64_t i = 0; i < records; ++i) store(record_of(i));
      ns[static_cast<size_t>(t)] = (thread_ns() - start) / static_cast<double>(records);
    });
  }
  double sum = 0;
  for (auto& thread : running) thread.join();
  for (const double each : ns) sum += each;
  return sum / threads;
}

double measure_trace(Trace& trace, int threads, uint64_t records) {
  return measure(threads, records, [&] { return [&](const Record& record) { trace.write(record); }; });
}

double measure_memcpy(int threads, uint64_t records) {
  return measure(threads, records, [] {
    return [memory = std::vector<Record>(kRingRecords), at = uint64_t{0}](const Record& record) mutable {
      std::memcpy(&memory[at++ & (kRingRecords - 1)], &record, sizeof(record));
      asm volatile("" ::: "memory");
    };
  });
}

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  const size_t half = values.size() / 2;
  return values.size() % 2 == 1 ? values[half] : (values[half - 1] + values[half]) / 2;
}

struct Row {
  int threads = 0;
  double trace_ns = 0, memcpy_ns = 0, ratio = 0, ratio_low = 0, ratio_high = 0;
};

// The ratio of the pairs: geometric mean and its 95% interval (normal approximation).
void fill_ratio(const std::vector<double>& logs, Row* row) {
  const auto count = static_cast<double>(logs.size());
  double mean = 0, variance = 0;
  for (const double value : logs) mean += value / count;
  for (const double value : logs) variance += (value - mean) * (value - mean) / std::max(1.0, count - 1);
  const double half = 1.96 * std::sqrt(variance / count);
  row->ratio = std::exp(mean);
  row->ratio_low = std::exp(mean - half);
  row->ratio_high = std::exp(mean + half);
}

Row run(Trace& trace, int threads, const Settings& settings) {
  std::vector<double> traced, plain, logs;
  for (int pair = 0; pair < settings.pairs; ++pair) {
    const bool trace_first = pair % 2 == 0;
    if (trace_first) traced.push_back(measure_trace(trace, threads, settings.records));
    plain.push_back(measure_memcpy(threads, settings.records));
    if (!trace_first) traced.push_back(measure_trace(trace, threads, settings.records));
    logs.push_back(std::log(traced.back() / plain.back()));
  }
  Row row{.threads = threads, .trace_ns = median(traced), .memcpy_ns = median(plain)};
  fill_ratio(logs, &row);
  return row;
}

void print_table(const std::vector<Row>& rows) {
  std::printf("%8s %14s %14s %22s %10s\n", "threads", "trace ns", "memcpy ns", "ratio (95%)", "bar");
  for (const Row& row : rows) {
    std::printf("%8d %14.2f %14.2f %7.2f (%5.2f - %5.2f) %10s\n", row.threads, row.trace_ns, row.memcpy_ns,
                row.ratio, row.ratio_low, row.ratio_high, row.trace_ns <= kBarNs ? "met" : "missed");
  }
}

std::string as_json(const std::vector<Row>& rows) {
  std::string text = "{\"benchmark\": \"trace\", \"bar_ns\": 10, \"rows\": [";
  for (const Row& row : rows) {
    char line[256];
    std::snprintf(line, sizeof(line),
                  "%s\n  {\"threads\": %d, \"trace_ns\": %.3f, \"memcpy_ns\": %.3f, \"ratio\": %.4f, "
                  "\"ratio_low\": %.4f, \"ratio_high\": %.4f}",
                  &row == rows.data() ? "" : ",", row.threads, row.trace_ns, row.memcpy_ns, row.ratio,
                  row.ratio_low, row.ratio_high);
    text += line;
  }
  return text + "\n]}\n";
}

bool parse(int argc, char** argv, Settings* settings) {
  for (int i = 1; i < argc; ++i) {
    const std::string flag = argv[i];
    if (flag == "--quick") {
      settings->records = 200'000;
      settings->pairs = 3;
    } else if (flag == "--json" && i + 1 < argc) {
      settings->json = argv[++i];
    } else {
      std::fprintf(stderr, "usage: bench_trace [--quick] [--json FILE]; '%s' is not known\n", argv[i]);
      return false;
    }
  }
  return true;
}

}  // namespace

int main(int argc, char** argv) {
  Settings settings;
  if (!parse(argc, argv, &settings)) return 2;
  const std::string path =
      std::filesystem::temp_directory_path() / ("bench-trace-" + std::to_string(::getpid()));
  std::string error;
  const auto trace = Trace::open(path, {.rings = 8}, &error);
  if (!trace) {
    std::fprintf(stderr, "bench_trace: %s\n", error.c_str());
    return 1;
  }
  std::vector<Row> rows;
  for (const int threads : {1, 4}) rows.push_back(run(*trace, threads, settings));
  std::filesystem::remove(path);
  print_table(rows);
  const std::string json = as_json(rows);
  if (settings.json.empty()) {
    std::fputs(json.c_str(), stdout);
  } else {
    std::ofstream(settings.json) << json;
  }
  return trace->dropped() == 0 ? 0 : 1;
}
