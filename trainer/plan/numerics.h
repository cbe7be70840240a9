// Numerics: in which numbers a model is trained, and by which optimizer, as a value.
//
// A plan never changes what is computed; these do. What they leave of the results of 32-bit floats is
// measured in docs/techniques.md.
//
// Thread-safety: values and pure functions. Units: bytes.
#pragma once
#include <cstdint>
#include <optional>
#include <string_view>

namespace spillway::trainer {

// Norms, softmax and loss are computed in 32-bit floats under each of them.
enum class Precision : uint8_t {
  kFloat32,
  kTf32,       // 32-bit floats, whose products may round their factors to 19 bits; only GPUs do
  kBf16Mixed,  // weights and activations in bfloat16, master weights and gradients in 32 bits
  kFp16Mixed,  // the same in float16, with a dynamic loss scale
  kBf16,       // weights, activations and gradients in bfloat16; updates are rounded stochastically
  kInt8,       // the same, with the layers' matrices in 8 bits and a scale a row
};
inline constexpr Precision kPrecisions[] = {Precision::kFloat32,   Precision::kTf32, Precision::kBf16Mixed,
                                            Precision::kFp16Mixed, Precision::kBf16, Precision::kInt8};
const char* name_of(Precision precision);  // "fp32", "tf32", "bf16-mixed", "fp16-mixed", "bf16", "int8"
std::optional<Precision> precision_of(std::string_view name);

enum class OptimizerKind : uint8_t {
  kAdamW,      // Adam with decoupled weight decay
  kAdam,       // weight decay added to the gradient
  kSgd,        // with momentum
  kAdafactor,  // second moments as a row and a column, no first moment
  kAdamW8bit,  // moments in 8 bits a number, in blocks of 256
};
inline constexpr OptimizerKind kOptimizers[] = {OptimizerKind::kAdamW, OptimizerKind::kAdam,
                                                OptimizerKind::kSgd, OptimizerKind::kAdafactor,
                                                OptimizerKind::kAdamW8bit};
const char* name_of(OptimizerKind optimizer);  // "adamw", "adam", "sgd", "adafactor", "adamw8bit"
std::optional<OptimizerKind> optimizer_of(std::string_view name);

struct Numerics {
  Precision precision = Precision::kFloat32;
  OptimizerKind optimizer = OptimizerKind::kAdamW;

  bool operator==(const Numerics&) const = default;

  // The optimizer keeps the weights in 32 bits beside those that the model computes with.
  bool has_master_weights() const {
    return precision == Precision::kBf16Mixed || precision == Precision::kFp16Mixed;
  }
  // Weights have no master, so that an update is rounded by chance.
  bool rounds_stochastically() const { return precision >= Precision::kBf16; }
  // Of one number: of the weights that the model computes with, and of activations; of accumulated gradients.
  uint32_t weight_bytes() const { return precision <= Precision::kTf32 ? 4 : 2; }
  uint32_t gradient_bytes() const { return rounds_stochastically() ? 2 : 4; }
};

}  // namespace spillway::trainer
