#include "trainer/ranks/beat.h"

#include <unistd.h>

#include <climits>
#include <fstream>
#include <nlohmann/json.hpp>

#include "base/printed.h"
#include "base/process_identity.h"

namespace spillway::trainer {
namespace {

// The third field of /proc/ID/stat, behind a name in parentheses that may hold anything.
char state_of(uint64_t process) {
  std::ifstream file("/proc/" + std::to_string(process) + "/stat");
  std::string text;
  std::getline(file, text, '\0');
  const size_t name_end = text.rfind(')');
  return name_end == std::string::npos || name_end + 2 >= text.size() ? 'X' : text[name_end + 2];
}

std::string link_target(const char* path) {
  char target[PATH_MAX];
  const ssize_t size = ::readlink(path, target, sizeof target);
  return size <= 0 ? "" : std::string(target, static_cast<size_t>(size));
}

}  // namespace

std::string to_text(const Beat& beat) {
  const nlohmann::ordered_json json = {{"count", beat.count},
                                       {"step", beat.step},
                                       {"doing", beat.doing},
                                       {"waits", beat.waits},
                                       {"quiet_seconds", beat.quiet_seconds},
                                       {"overdue", beat.overdue},
                                       {"left", beat.left},
                                       {"machine", beat.machine},
                                       {"process", beat.process},
                                       {"process_start", beat.process_start}};
  return json.dump();
}

std::optional<Beat> beat_of(const std::string& text) {
  try {
    const auto json = nlohmann::ordered_json::parse(text);
    return Beat{.count = json.at("count"),
                .step = json.at("step"),
                .doing = json.at("doing"),
                .waits = json.at("waits"),
                .quiet_seconds = json.at("quiet_seconds"),
                .overdue = json.at("overdue"),
                .left = json.at("left"),
                .machine = json.at("machine"),
                .process = json.at("process"),
                .process_start = json.at("process_start")};
  } catch (const nlohmann::json::exception&) {
    return std::nullopt;
  }
}

std::string place_of(const Beat& beat) {
  return printed("in step %llu: %s since %.1f s", (unsigned long long)beat.step, beat.doing.c_str(),
                 beat.quiet_seconds);
}

std::string this_machine() {
  std::ifstream file("/proc/sys/kernel/random/boot_id");
  std::string boot;
  std::getline(file, boot);
  return boot + " " + link_target("/proc/self/ns/pid");
}

ProcessSeen look_at(const Beat& beat) {
  static const std::string here = this_machine();
  if (beat.process_start == 0 || beat.machine != here) return ProcessSeen::kElsewhere;
  if (!is_alive({beat.process, beat.process_start})) return ProcessSeen::kGone;
  const char state = state_of(beat.process);
  return state == 'T' || state == 't' ? ProcessSeen::kStopped : ProcessSeen::kRuns;
}

}  // namespace spillway::trainer
