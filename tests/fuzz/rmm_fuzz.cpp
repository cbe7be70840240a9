// Logs of RMM's: lines with commas, whatever stands in them.
#include <sstream>

#include "tests/fuzz/promises/history_promises.h"
#include "tests/fuzz/promises/promise.h"
#include "tools/spillway/rmm/line.h"
#include "tools/spillway/rmm/log.h"

namespace spillway::fuzz {
namespace {

using namespace tools;

void answers(const uint8_t* data, size_t size) {
  const std::string text(reinterpret_cast<const char*>(data), size);
  static_cast<void>(begins_as_rmm_log(text));
  std::istringstream lines(text);
  std::string error;
  const auto history = parse_rmm_log(lines, static_cast<int>(size % 3), &error);
  if (!history) return promise(!error.empty(), "a file that is no log is said to be none");
  promise(history->requests_only, "a log has requests and nothing else");
  uint64_t events = 0;
  for (const auto& [number, device] : history->devices) events += device.events.size();
  promise(events <= 3 * size, "events are lines of the file");
  keeps_promises(*history, choice_of(data, size));
}

}  // namespace
}  // namespace spillway::fuzz

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  spillway::fuzz::answers(data, size);
  return 0;
}
