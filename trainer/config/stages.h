// Which configurations the stages of a pipeline over ranks can follow.
//
// Thread-safety: pure. Errors: a text that names the key and says what to write instead; "": none.
#pragma once
#include <string>

#include "trainer/config/config.h"

namespace spillway::trainer {

std::string fault_of_stages(const Config& config);

}  // namespace spillway::trainer
