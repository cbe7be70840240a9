// Which plans a training can follow: by its numerics, and by what its ranks share.
//
// Thread-safety: pure. Errors: a text that names the key and says what to write instead; "": none.
#pragma once
#include <string>

#include "trainer/plan/numerics.h"
#include "trainer/plan/plan.h"
#include "trainer/plan/ranks/same_sequence.h"

namespace spillway::trainer {

// `section`: what the text calls the plan's table, such as "plan".
std::string fault_of_plan(const Plan& plan, const Numerics& numerics, const SharedWork& work,
                          const std::string& section);

}  // namespace spillway::trainer
