// The learning rate's schedule. Pure.
#pragma once
#include <cstdint>

#include "trainer/config/config.h"

namespace spillway::trainer {

// The learning rate of a step, from 0: a linear warm-up, then half a cosine down to the minimum.
double learning_rate(const TrainConfig& train, uint64_t step);

}  // namespace spillway::trainer
