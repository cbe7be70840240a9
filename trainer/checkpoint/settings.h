// The settings that decide what a training computes, beside its model and its rows: for a run that resumes to
// say which of them have changed.
//
// Thread-safety: pure functions. Errors: none.
#pragma once
#include <string>

#include "trainer/config/config.h"

namespace spillway::trainer {

// "train.batch = 8\n...": those alone that have an effect, each number as short as it can be read back.
std::string settings_of(const Config& config);
// "train.batch was 8 and is 4, model.dropout was 0.1 and is 0"; "" where all are the same. A setting that
// only one of both has had no effect in the other one.
std::string changed_settings(const std::string& before, const std::string& now);

// The shortest text that is read back as the same number.
std::string number_text(double number);

}  // namespace spillway::trainer
