// What `spillway doctor` tries.
//
// Thread-safety: one thread. Errors: findings. Units: seconds for deadlines.
#pragma once
#include <cstdint>
#include <vector>

#include "driver/table.h"
#include "tools/spillway/doctor/trial.h"

namespace spillway::tools {

// The names of those without which `spillway run` cannot work.
inline constexpr const char* kDriverTrial = "CUDA driver";
inline constexpr const char* kPreloadTrial = "preloaded library";
inline constexpr const char* kSettingsTrial = "settings";

// The driver, and what each device can do. To be called in a process of its own.
std::vector<Trial> try_driver();
// One of its parts: whether memory has handles of cuIpcGetMemHandle, and what of Spillway's has.
Trial try_legacy_handles(const driver::Table& table, int count);
// The preloaded library in a program, in Python, and in the place of PyTorch's allocator.
std::vector<Trial> try_programs(double seconds);
// What the program of the trial does under the preloaded library: it looks for it, and calls the driver.
int answer_trial();
// Ways between processes. To be called in a process of its own.
std::vector<Trial> try_processes();
// Limits of the system that Spillway or a training program runs into.
std::vector<Trial> try_limits();
// One of them: /dev/shm with so many bytes free of its size.
Trial judge_shared_memory(uint64_t free, uint64_t size);

}  // namespace spillway::tools
