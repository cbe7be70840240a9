#include "libtorch/rehearsal/stream.h"

#include <cerrno>
#include <cinttypes>
#include <cstdio>
#include <cstring>

#include "libtorch/rehearsal/settings.h"

namespace spillway::rehearsal {
namespace {

std::FILE* file = nullptr;

}  // namespace

void open_stream() {
  const std::string path = settings().stream_path;
  if (path.empty()) return;
  file = std::fopen(path.c_str(), "we");
  if (file == nullptr) {
    std::fprintf(stderr, "spillway rehearsal: the stream of allocations can not be written to %s: %s\n",
                 path.c_str(), std::strerror(errno));
    return;
  }
  std::fputs("spillway-stream 1\n", file);
}

void write_event(int device, const Ledger& ledger, StreamEvent event, uint64_t number, Site site) {
  if (file == nullptr) return;
  std::fprintf(file, "%d %c %" PRIu64, device, static_cast<char>(event), number);
  if (event == StreamEvent::kAllocated) std::fprintf(file, " %" PRIu64, ledger.last_stream());
  if (event == StreamEvent::kAllocated || event == StreamEvent::kFailed) std::fprintf(file, " %u", site);
  std::fputc('\n', file);
}

void write_step(uint64_t step) {
  if (file != nullptr) std::fprintf(file, "step %" PRIu64 "\n", step);
}

void flush_stream() {
  if (file != nullptr) std::fflush(file);
}

}  // namespace spillway::rehearsal
