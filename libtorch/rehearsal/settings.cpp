#include "libtorch/rehearsal/settings.h"

#include <unistd.h>

#include <cstdlib>

namespace spillway::rehearsal {
namespace {

std::string text_of(const char* name) {
  const char* text = std::getenv(name);
  return text == nullptr ? "" : text;
}

std::string path_of(const char* name) {
  std::string path = text_of(name);
  const size_t start = path.rfind('/') + 1;  // a folder's name may have a %p of its own
  if (const size_t place = path.find("%p", start); place != std::string::npos)
    path.replace(place, 2, std::to_string(::getpid()));
  return path;
}

Settings read() {
  Settings settings;
  settings.result_path = path_of("SPILLWAY_REHEARSAL_RESULT");
  settings.stream_path = path_of("SPILLWAY_REHEARSAL_STREAM");
  settings.history_path = path_of("SPILLWAY_REHEARSAL_HISTORY");
  settings.allocator = text_of("SPILLWAY_REHEARSAL_ALLOCATOR");
  settings.steps = std::strtoull(text_of("SPILLWAY_REHEARSAL_STEPS").c_str(), nullptr, 10);
  settings.values = text_of("SPILLWAY_SIM_VALUES");
  return settings;
}

}  // namespace

const Settings& settings() {
  static const Settings held = read();
  return held;
}

}  // namespace spillway::rehearsal
