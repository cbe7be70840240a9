#include "trainer/app/run_files.h"

#include <filesystem>

namespace spillway::trainer {

bool RunFiles::make_folder(const std::string& folder, const char* key, std::string* error) {
  std::error_code code;
  std::filesystem::create_directories(folder, code);
  if (std::filesystem::is_directory(folder)) return true;
  *error = "cannot make the folder '" + folder + "' (" + code.message() + "): set " + key +
           " to a writable folder";
  return false;
}

bool RunFiles::open(const std::string& folder, bool resumed, std::string* error) {
  const auto mode = resumed ? std::ios::app : std::ios::trunc;
  losses_.open(folder + "/losses.txt", mode);
  schedule_.open(folder + "/plan_schedule.toml", mode);
  losses_ << std::hexfloat;
  if (healthy()) return true;
  *error =
      "can not write losses.txt and plan_schedule.toml in '" + folder + "': set run.out to a writable folder";
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
