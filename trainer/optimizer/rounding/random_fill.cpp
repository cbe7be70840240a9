#include "trainer/optimizer/rounding/random_fill.h"

namespace spillway::trainer {

void fill_randomly(const RandomFill& fill) {
  for (long long i = 0; i < fill.elements; ++i) fill.to[i] = random_number(fill, i);
}

}  // namespace spillway::trainer
