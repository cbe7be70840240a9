#include "trainer/optimizer/quantization/blockwise_adamw.h"

namespace spillway::trainer {

void update_blocks_by_lanes(const BlockwiseUpdate& update, int64_t begin, int64_t end) {
  for (int64_t block = begin; block < end; ++block) {
    warp::LaneMoments moments[kWarpLanes];
    warp::Largest largest;
    for (int lane = 0; lane < kWarpLanes; ++lane)
      largest = warp::larger(largest,
                             warp::advance(update, update.first, update.second, block, lane, &moments[lane]));
    for (int lane = 0; lane < kWarpLanes; ++lane)
      warp::encode(update, update.first, update.second, block, lane, moments[lane], largest);
  }
}

}  // namespace spillway::trainer
