#include "trainer/app/progress.h"

#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <string_view>

namespace spillway::trainer {
namespace {

constexpr std::chrono::milliseconds kBetween{50};
constexpr std::string_view kWipe = "\r\x1b[K";  // to the line's begin, and all of it away
constexpr size_t kUsualColumns = 80;

std::atomic<bool> on_screen{false};
static_assert(std::atomic<bool>::is_always_lock_free);

// What comes out too late or not at all is only for eyes.
void write_now(std::string_view text) noexcept {
  while (!text.empty()) {
    const ssize_t count = ::write(STDOUT_FILENO, text.data(), text.size());
    if (count <= 0) return;
    text.remove_prefix(static_cast<size_t>(count));
  }
}

size_t columns_of_terminal() {
  winsize size{};
  if (::ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0) return size.ws_col;
  const char* said = std::getenv("COLUMNS");
  const unsigned long columns = said != nullptr ? std::strtoul(said, nullptr, 10) : 0;
  return columns > 0 && columns < 10000 ? columns : kUsualColumns;
}

// "0:42", "1:02:03", "5 days".
std::string time_left(double seconds) {
  constexpr unsigned long long kDay = 86400;
  constexpr double kMost = 100 * 365 * double(kDay);
  const auto whole =
      static_cast<unsigned long long>(std::isfinite(seconds) ? std::clamp(seconds, 0.0, kMost) : kMost);
  char text[48];
  if (whole >= 2 * kDay)
    std::snprintf(text, sizeof text, "%llu days", whole / kDay);
  else if (whole >= 3600)
    std::snprintf(text, sizeof text, "%llu:%02llu:%02llu", whole / 3600, whole / 60 % 60, whole % 60);
  else
    std::snprintf(text, sizeof text, "%llu:%02llu", whole / 60, whole % 60);
  return text;
}

}  // namespace

std::string progress_text(const Progress& progress, size_t columns) {
  char text[200];
  std::snprintf(text, sizeof text, "step %llu/%llu  loss %.4f  %.0f tokens/s  %s left",
                (unsigned long long)progress.done, (unsigned long long)progress.steps, progress.loss,
                progress.tokens_per_second, time_left(progress.seconds_left).c_str());
  std::string line = text;
  if (!progress.memory.empty()) line += "  " + progress.memory;
  line += "  " + progress.plan;
  return line.substr(0, columns);
}

bool ProgressLine::possible() {
  const char* terminal = std::getenv("TERM");
  return ::isatty(STDOUT_FILENO) == 1 && terminal != nullptr && *terminal != '\0' &&
         std::string_view(terminal) != "dumb";
}

void ProgressLine::show(const Progress& progress) {
  progress_ = progress;
  shown_ = true;
  if (std::chrono::steady_clock::now() - drawn_ >= kBetween || progress.done == progress.steps) redraw();
}

void ProgressLine::redraw() {
  if (!shown_) return;
  std::fflush(stdout);
  on_screen = true;
  // The last column stays free: a cursor behind it is on the next line of some terminals.
  write_now(std::string(kWipe) + progress_text(progress_, columns_of_terminal() - 1));
  drawn_ = std::chrono::steady_clock::now();
}

void ProgressLine::clear() {
  std::fflush(stdout);
  wipe_progress();
}

void wipe_progress() noexcept {
  if (on_screen.exchange(false)) write_now(kWipe);
}

}  // namespace spillway::trainer
