#include "libtorch/rehearsal/probe/stream.h"

#include <algorithm>
#include <cerrno>
#include <cinttypes>
#include <compare>
#include <cstdio>
#include <cstring>
#include <utility>
#include <vector>

#include "libtorch/rehearsal/settings.h"

namespace spillway::rehearsal {
namespace {

std::FILE* file = nullptr;
int first_error = 0;  // an errno

struct Free {
  int device;
  uint64_t ordinal;
  auto operator<=>(const Free&) const = default;
};
// Since the last other event. PyTorch makes some in the order of host addresses, so they are written in their
// own.
std::vector<Free> frees;

void write_frees() {
  std::sort(frees.begin(), frees.end());
  for (const Free& one : frees) std::fprintf(file, "%d f %" PRIu64 "\n", one.device, one.ordinal);
  frees.clear();
}

// After each write: a later one has an errno of its own.
void note_error(bool failed) {
  if (failed && first_error == 0) first_error = errno;
}

}  // namespace

void open_stream() {
  const std::string path = settings().stream_path;
  if (path.empty()) return;
  file = std::fopen(path.c_str(), "we");
  if (file == nullptr) {
    std::fprintf(stderr, "spillway rehearsal: the stream of allocations cannot be written to %s: %s\n",
                 path.c_str(), std::strerror(errno));
    return;
  }
  std::fputs("spillway-stream 1\n", file);
}

void write_event(int device, const Ledger& ledger, StreamEvent event, uint64_t number, Site site) {
  if (file == nullptr) return;
  if (event == StreamEvent::kFreed) {
    frees.push_back({device, number});
    return;
  }
  write_frees();
  std::fprintf(file, "%d %c %" PRIu64, device, static_cast<char>(event), number);
  if (event == StreamEvent::kAllocated) std::fprintf(file, " %" PRIu64, ledger.last_stream());
  if (event == StreamEvent::kAllocated || event == StreamEvent::kFailed) std::fprintf(file, " %u", site);
  std::fputc('\n', file);
  note_error(std::ferror(file) != 0);
}

void write_step(uint64_t step) {
  if (file == nullptr) return;
  write_frees();
  std::fprintf(file, "step %" PRIu64 "\n", step);
  note_error(std::ferror(file) != 0);
}

void flush_stream() {
  if (file != nullptr) note_error(std::fflush(file) != 0);
}

void close_stream() {
  if (file == nullptr) return;
  write_frees();
  note_error(std::fclose(std::exchange(file, nullptr)) != 0);
}

std::string stream_error() {
  return first_error == 0 ? "" : std::strerror(first_error);
}

}  // namespace spillway::rehearsal
