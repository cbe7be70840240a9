// Settings that somebody gave and that have no effect beside the others: for a run to warn of.
//
// Thread-safety: pure functions. Errors: none.
#pragma once
#include <set>
#include <string>
#include <vector>

#include "trainer/config/config.h"

namespace spillway::trainer {

// `given`: the keys of the configuration, such as "train.momentum". A sentence for each.
std::vector<std::string> idle_settings(const Config& config, const std::set<std::string>& given);

}  // namespace spillway::trainer
