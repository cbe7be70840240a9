#include "trainer/step/micro_batches/schedule.h"

namespace spillway::trainer {

void MicroBatchSchedule::save(uint32_t number) {
  if (!starts_.contains(number)) starts_.emplace(number, RandomState::of(devices_));
}

void MicroBatchSchedule::restore(uint32_t number) {
  drop();
  starts_.erase(starts_.upper_bound(number), starts_.end());
  starts_.at(number).restore();
}

void MicroBatchSchedule::clear() {
  drop();
  starts_.clear();
}

}  // namespace spillway::trainer
