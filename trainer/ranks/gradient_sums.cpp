#include "trainer/ranks/gradient_sums.h"

namespace spillway::trainer {

GradientSums::GradientSums(Parameters& parameters, Ranks& ranks, std::vector<int> layers)
    : parameters_(parameters), ranks_(ranks), layers_(std::move(layers)) {}

bool GradientSums::ends_bucket(size_t index, size_t bytes) const {
  const size_t next = index + 1;
  return bytes >= kBucketBytes || next == parameters_.size() || layers_[next] != layers_[index] ||
         parameters_.gradient(next).scalar_type() != parameters_.gradient(index).scalar_type();
}

void GradientSums::add_up() {
  if (ranks_.is_alone()) return;
  std::vector<at::Tensor> bucket;
  size_t bytes = 0;
  parameters_.walk(Parameters::Walk::kChangeGradients, [&](size_t index) {
    if (index < added_up_) return;
    bucket.push_back(parameters_.gradient(index));
    bytes += parameters_.gradient(index).nbytes();
    if (!ends_bucket(index, bytes)) return;
    ranks_.add_up(std::exchange(bucket, {}));
    bytes = 0;
    added_up_ = index + 1;
  });
}

}  // namespace spillway::trainer
