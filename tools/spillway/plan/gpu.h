// The cards that a plan can be made for: how much of them a training can use, and how fast they are.
//
// Thread-safety: constant data. Errors: a text with the nearest names. Units: bytes, operations and bytes a
// second; all figures of a card are a data sheet's, those of a machine are what is assumed to be achieved.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "trainer/plan/estimate.h"

namespace spillway::tools {

// Of a data sheet's rate, that products and copies in the device's memory are taken to achieve.
inline constexpr double kAchievedOperations = 0.75, kAchievedMemory = 0.85;

struct Gpu {
  std::string id, name;
  uint64_t capacity_bytes = 0;
  uint64_t outside_bytes = 0;                     // the context's, and cuBLAS's
  double fp32 = 0, tf32 = 0, half = 0, bf16 = 0;  // 0: it has no products of that type
  bool has_kernels = true;                        // in PyTorch's builds for CUDA 13
  double memory = 0, host = 0, peer = 0;
  uint64_t workspace_bytes = 0;  // that PyTorch gives cuBLAS
};

// The workspace on cards before Hopper: ":4096:2:16:8" of cuBLAS's configuration.
inline constexpr uint64_t kProductWorkspace = 2 * (4096 << 10) + 8 * (16 << 10);

const std::vector<Gpu>& gpus();

// "a100-80gb", "RTX 4090", "4090": a name, or a part of exactly one. "24GiB": as many bytes that a training
// may use, as run.limit has it, of a card with the rates of the trainer's defaults.
std::optional<Gpu> find_gpu(const std::string& text, std::string* error);

// What keeps a training of that precision from the card, or from its speed; "" where nothing does.
std::string note_on(const Gpu& gpu, trainer::Precision precision);
// A card without products of a precision computes them in 32-bit floats.
trainer::Machine machine_of(const Gpu& gpu, uint32_t count, trainer::Precision precision);

}  // namespace spillway::tools
