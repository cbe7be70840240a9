#include "trainer/optimizer/update_rule.h"

#include "trainer/optimizer/rules/rules.h"

namespace spillway::trainer {

std::unique_ptr<UpdateRule> update_rule(const TrainConfig& train, size_t parameters) {
  switch (train.numerics.optimizer) {
    case OptimizerKind::kAdamW:
      return std::make_unique<AdamRule>(train, true);
    case OptimizerKind::kAdam:
      return std::make_unique<AdamRule>(train, false);
    case OptimizerKind::kSgd:
      return std::make_unique<SgdRule>(train);
    case OptimizerKind::kAdafactor:
      return std::make_unique<AdafactorRule>(train, parameters);
    case OptimizerKind::kAdamW8bit:
      return std::make_unique<QuantizedAdamWRule>(train);
  }
  return nullptr;
}

}  // namespace spillway::trainer
