#include "libtorch/rehearsal/history.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cinttypes>
#include <cstdio>
#include <cstring>
#include <nlohmann/json.hpp>
#include <string>

#include "libtorch/rehearsal/settings.h"

namespace spillway::rehearsal {
namespace {

using Json = nlohmann::ordered_json;

// About three million events; the file may lie in memory.
constexpr size_t kMostBytes = size_t{128} << 20;
constexpr size_t kBuffered = size_t{64} << 10;

// A buffer of our own: one of stdio's would be written once more by a forked child that ends.
class HistoryFile {
 public:
  void open(const std::string& path) {
    if (!path.empty()) descriptor_ = ::open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    add("spillway-history 1\n");
  }
  bool is_open() const { return descriptor_ >= 0; }
  void add(std::string_view line) {
    if (!is_open() || cut_) return;
    buffer_ += line;
    bytes_ += line.size();
    if (buffer_.size() >= kBuffered) flush();
  }
  // Names have a place beyond the bound: without them what is there says little.
  void add_event(std::string_view line) {
    if (bytes_ < kMostBytes) return add(line);
    add("cut\n");
    flush();
    cut_ = true;
  }
  void flush() {
    for (std::string_view rest = buffer_; !rest.empty() && is_open();) {
      const ssize_t written = ::write(descriptor_, rest.data(), rest.size());
      if (written > 0)
        rest.remove_prefix(static_cast<size_t>(written));
      else if (written == 0 || errno != EINTR)
        give_up(errno);
    }
    buffer_.clear();
  }

 private:
  void give_up(int error) {
    std::fprintf(stderr,
                 "spillway rehearsal: the history of allocations ends early, it cannot be written: %s\n",
                 std::strerror(error));
    ::close(descriptor_);
    descriptor_ = -1;
  }

  int descriptor_ = -1;
  std::string buffer_;
  size_t bytes_ = 0;
  bool cut_ = false;
};

HistoryFile& file() {
  static auto* const held = new HistoryFile;  // outlives static destruction
  return *held;
}
size_t named = 0;  // places whose names are written

Json json_of(const SiteText& text) {
  Json frames = Json::array();
  for (const Frame& frame : text.frames) frames.push_back({frame.function, frame.file, frame.line});
  return {{"label", text.label}, {"frames", frames}};
}

}  // namespace

void open_history() {
  file().open(settings().history_path);
}

void write_history(const HistoryLine& line) {
  if (!file().is_open()) return;
  char text[160];
  std::snprintf(text, sizeof text,
                "%c %x %" PRIx64 " %" PRIx64 " %" PRIx64 " %" PRIx64 " %" PRIx64 " %" PRIx32 "\n",
                static_cast<char>(line.kind), static_cast<unsigned>(line.device), line.address, line.bytes,
                line.stream, line.pool.first, line.pool.second, line.site);
  file().add_event(text);
}

void write_history_step(uint64_t step) {
  file().add_event("step " + std::to_string(step) + "\n");
}

void flush_history(const Sites& sites) {
  for (; file().is_open() && named < sites.symbolized(); ++named) {
    const Json names = json_of(sites.text(static_cast<Site>(named)));
    file().add("name " + std::to_string(named) + " " +
               names.dump(-1, ' ', false, Json::error_handler_t::replace) + "\n");
  }
  file().flush();
}

}  // namespace spillway::rehearsal
