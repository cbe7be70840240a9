// A recorded stream of requests, as benchmarks/streams/record.py writes it.
//
// Text, a line a request: "a ID BYTES STREAM" allocates, "f ID" frees, "step" ends a step. Errors: the line
// that is none of these, that names a block twice, or frees one that is not live.
#pragma once
#include <algorithm>
#include <cstddef>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

namespace spillway::benchmark {

struct Operation {
  size_t id = 0;
  size_t bytes = 0;  // 0: free
  size_t stream = 0;
};

struct Stream {
  std::vector<Operation> operations;
  std::vector<size_t> steps;  // where each step ends, as an index into the operations; at least one
  size_t ids = 0, streams = 1;
};

inline bool read_operation(const std::string& line, Operation* out) {
  std::istringstream words(line);
  char what = 0;
  words >> what;
  if (what == 'a') return static_cast<bool>(words >> out->id >> out->bytes >> out->stream) && out->bytes != 0;
  out->bytes = 0;
  return what == 'f' && static_cast<bool>(words >> out->id);
}

// "" or what is wrong.
inline std::string read_stream(const std::string& path, Stream* out) {
  std::ifstream file(path);
  if (!file) return path + ": cannot be read";
  std::vector<bool> live;
  std::string line;
  for (size_t number = 1; std::getline(file, line); ++number) {
    const std::string where = path + ":" + std::to_string(number) + ": '" + line + "'";
    if (line == "step") {
      out->steps.push_back(out->operations.size());
      continue;
    }
    Operation operation;
    if (!read_operation(line, &operation)) return where + " is no line of a stream";
    constexpr size_t kMostIds = size_t{1} << 32;
    if (operation.id >= kMostIds || operation.stream > 1024) return where + ": the number is too large";
    if (operation.id >= live.size()) live.resize(operation.id + 1);
    if (live[operation.id] == (operation.bytes != 0)) return where + ": no such block now";
    live[operation.id] = operation.bytes != 0;
    out->ids = live.size();
    out->streams = std::max(out->streams, operation.stream + 1);
    out->operations.push_back(operation);
  }
  if (out->operations.empty()) return path + ": has no request";
  if (out->steps.empty()) out->steps.push_back(out->operations.size());
  return "";
}

// The most bytes ever live, each request rounded up to 512: no allocator can do with less.
inline size_t most_live(const Stream& stream) {
  std::vector<size_t> sizes(stream.ids);
  size_t live = 0, most = 0;
  for (const Operation& operation : stream.operations) {
    if (operation.bytes != 0)
      live += sizes[operation.id] = (operation.bytes + 511) / 512 * 512;
    else
      live -= sizes[operation.id];
    most = std::max(most, live);
  }
  return most;
}

}  // namespace spillway::benchmark
