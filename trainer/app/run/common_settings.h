// What the ranks of one training must have in common, a line for each thing, for people.
#pragma once
#include <string>

#include "trainer/config/config.h"
#include "trainer/data/corpus.h"

namespace spillway::trainer {

std::string common_settings(const Config& config, const Corpus& corpus, bool resumes);

}  // namespace spillway::trainer
