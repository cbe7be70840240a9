// What must be true of any requests, and of replaying them.
#pragma once
#include "tools/spillway/replay/input/input.h"
#include "tools/spillway/replay/replay.h"

namespace spillway::fuzz {

void keeps_promises(const tools::Requests& requests, const tools::TorchSettings& settings);

}  // namespace spillway::fuzz
