// A training run's state in one safetensors file: parameters, moments, random states, and as metadata the
// step, the data cursor, the plan and the model's shape. Written atomically; a run that resumes from it gives
// the bits of one that was never stopped (on the same devices, threads and plan).
//
// Of several ranks rank 0 saves, on the terms of WholeStates where ranks share the states, and each loads
// what it keeps: a file is complete, whatever number of ranks and stage of ZeRO wrote it.
//
// Thread-safety: one thread. Errors: texts; a checkpoint that does not fit the configuration changes nothing.
#pragma once
#include "trainer/checkpoint/saved_plan.h"
#include "trainer/config/config.h"
#include "trainer/step/training_step.h"

namespace spillway::trainer {

inline constexpr const char* kCheckpointName = "checkpoint.safetensors";

// The name of a checkpoint that an earlier run left where a later one has its own.
std::string aside_of(const std::string& path);
// Gives it that name; the name, or "": there is none, or it stays.
std::string set_aside(const std::string& path);
std::string set_aside_text(const std::string& aside);  // for the log
bool save_checkpoint(const std::string& path, const Config& config, const Corpus& corpus,
                     TrainingStep& program, const SavedPlan& plan, std::string* error);
// For the program to be built with before `load_checkpoint`.
std::optional<SavedPlan> plan_of_checkpoint(const std::string& path, const Config& config,
                                            std::string* error);
// How the rows that a checkpoint counted differ from those of this configuration, as a sentence; "" where
// they do not, or where it does not say. The size stands for the corpus: nothing of its text is compared.
std::string other_rows_of_checkpoint(const std::string& path, const Config& config, const Corpus& corpus);
// The settings that have changed since (settings.h); "" where none has, or where it does not say.
std::string other_settings_of_checkpoint(const std::string& path, const Config& config);
bool load_checkpoint(const std::string& path, const Config& config, TrainingStep* program,
                     std::string* error);

}  // namespace spillway::trainer
