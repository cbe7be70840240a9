#include "trainer/plan/numerics.h"

namespace spillway::trainer {
namespace {

template <typename Value, size_t N>
std::optional<Value> named(const Value (&known)[N], std::string_view name) {
  for (const Value value : known)
    if (name == name_of(value)) return value;
  return std::nullopt;
}

}  // namespace

const char* name_of(Precision precision) {
  switch (precision) {
    case Precision::kFloat32:
      return "fp32";
    case Precision::kTf32:
      return "tf32";
    case Precision::kBf16Mixed:
      return "bf16-mixed";
    case Precision::kFp16Mixed:
      return "fp16-mixed";
    case Precision::kBf16:
      return "bf16";
    case Precision::kInt8:
      return "int8";
  }
  return "?";
}

std::optional<Precision> precision_of(std::string_view name) {
  return named(kPrecisions, name);
}

const char* name_of(OptimizerKind optimizer) {
  switch (optimizer) {
    case OptimizerKind::kAdamW:
      return "adamw";
    case OptimizerKind::kAdam:
      return "adam";
    case OptimizerKind::kSgd:
      return "sgd";
    case OptimizerKind::kAdafactor:
      return "adafactor";
    case OptimizerKind::kAdamW8bit:
      return "adamw8bit";
  }
  return "?";
}

std::optional<OptimizerKind> optimizer_of(std::string_view name) {
  return named(kOptimizers, name);
}

}  // namespace spillway::trainer
