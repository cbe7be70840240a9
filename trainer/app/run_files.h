// The text files that a run leaves in its folder.
//
// Thread-safety: one thread. Errors: `open` says which file cannot be written; a later failure shows in
// `healthy`.
#pragma once
#include <cstdint>
#include <fstream>
#include <optional>
#include <string>

#include "trainer/plan/plan.h"

namespace spillway::trainer {

class RunFiles {
 public:
  static bool make_folder(const std::string& folder, const char* key, std::string* error);
  // In a folder that exists. `resumed`: continue the files of the run that stopped, else begin them anew.
  bool open(const std::string& folder, bool resumed, std::string* error);
  // A resumed run goes on with `step`: what was done beyond it, before it was cut off, is done again. Drops
  // that, and a line that was not written to its end.
  bool go_on_from(uint64_t step, std::string* error);
  void loss(uint64_t step, double loss, double gradient_norm);
  void evaluation(uint64_t step, double loss);
  // The plan that `step` was committed under; written when it differs from the step before.
  void plan(uint64_t step, const Plan& plan);
  bool healthy() const { return losses_.good() && schedule_.good(); }

 private:
  std::string folder_;
  std::ofstream losses_, schedule_;
  std::optional<Plan> last_plan_;
};

}  // namespace spillway::trainer
