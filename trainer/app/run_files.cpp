#include "trainer/app/run_files.h"

#include <charconv>
#include <cstring>
#include <filesystem>
#include <sstream>

#include "base/output_file.h"

namespace spillway::trainer {
namespace {

std::string read_text(const std::string& path) {
  std::ostringstream text;
  text << std::ifstream(path).rdbuf();
  return text.str();
}

// The number behind the prefix of a line, if it has that.
std::optional<uint64_t> number_behind(std::string_view line, std::string_view prefix) {
  uint64_t number = 0;
  if (!line.starts_with(prefix)) return std::nullopt;
  const char* const begin = line.data() + prefix.size();
  if (std::from_chars(begin, line.data() + line.size(), number).ec != std::errc()) return std::nullopt;
  return number;
}

// Whole lines of steps before `step`. An evaluation is told by the steps before it.
std::string losses_before(uint64_t step, std::string_view text) {
  std::string kept;
  for (size_t end; (end = text.find('\n')) != text.npos; text.remove_prefix(end + 1)) {
    const std::string_view line = text.substr(0, end + 1);
    const auto evaluation = number_behind(line, "evaluation "), done = number_behind(line, "");
    if ((evaluation && *evaluation <= step) || (done && *done < step)) kept += line;
  }
  return kept;
}

// Blocks, each from its heading on.
std::string schedule_before(uint64_t step, const std::string& text) {
  constexpr std::string_view kHeading = "[[plan.schedule]]\n";
  std::string kept;
  for (size_t begin = text.find(kHeading); begin != text.npos;) {
    const size_t end = std::min(text.find(kHeading, begin + 1), text.size());
    const std::string_view block = std::string_view(text).substr(begin, end - begin);
    const auto number = number_behind(block.substr(kHeading.size()), "step = ");
    if (number && *number < step && block.ends_with('\n')) kept += block;
    begin = end == text.size() ? text.npos : end;
  }
  return kept;
}

}  // namespace

bool RunFiles::make_folder(const std::string& folder, const char* key, std::string* error) {
  std::error_code code;
  std::filesystem::create_directories(folder, code);
  if (std::filesystem::is_directory(folder)) return true;
  *error = "cannot make the folder '" + folder + "' (" + code.message() + "): set " + key +
           " to a writable folder";
  return false;
}

bool RunFiles::open(const std::string& folder, bool resumed, std::string* error) {
  folder_ = folder;
  const auto mode = resumed ? std::ios::app : std::ios::trunc;
  losses_.open(folder + "/losses.txt", mode);
  schedule_.open(folder + "/plan_schedule.toml", mode);
  losses_ << std::hexfloat;
  if (healthy()) return true;
  *error =
      "cannot write losses.txt and plan_schedule.toml in '" + folder + "': set run.out to a writable folder";
  return false;
}

bool RunFiles::go_on_from(uint64_t step, std::string* error) {
  const std::string losses = folder_ + "/losses.txt", schedule = folder_ + "/plan_schedule.toml";
  losses_.close(), schedule_.close();
  int fault = write_text(losses, losses_before(step, read_text(losses)));
  if (fault == 0) fault = write_text(schedule, schedule_before(step, read_text(schedule)));
  if (fault == 0) return open(folder_, true, error);
  *error = "cannot write losses.txt and plan_schedule.toml in '" + folder_ + "': " + std::strerror(fault);
  return false;
}

void RunFiles::loss(uint64_t step, double loss, double gradient_norm) {
  losses_ << step << ' ' << loss << ' ' << gradient_norm << std::endl;
}

void RunFiles::evaluation(uint64_t step, double loss) {
  losses_ << "evaluation " << step << ' ' << loss << std::endl;
}

void RunFiles::plan(uint64_t step, const Plan& plan) {
  if (last_plan_ == plan) return;
  schedule_ << "[[plan.schedule]]\nstep = " << step << '\n' << to_toml(plan) << std::endl;
  last_plan_ = plan;
}

}  // namespace spillway::trainer
