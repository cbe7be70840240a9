#include "trainer/residency/activations/activation_host.h"

#include <numeric>

#include "trainer/residency/activations/kept_blocks.h"
#include "trainer/residency/host_tensor.h"

namespace spillway::trainer {

void ActivationHost::move_to(Place place, Homes homes) {
  place_ = place, homes_ = std::move(homes);
  blocks_.free_unused();  // of other sizes from now on, or of none
  files_.clear();
  has_left_disk_ = false;
}

void ActivationHost::leave_disk(const std::string& why) {
  has_left_disk_ = true;
  why_left_.insert("what layers keep for their backward stays on the host: " + why);
}

std::shared_ptr<KeptHome> ActivationHost::home(at::Device device, size_t position, uint32_t layer,
                                               std::vector<uint64_t> bytes) {
  const uint64_t all = std::accumulate(bytes.begin(), bytes.end(), uint64_t{0});
  try {
    if (place_ == Place::kNvme && !has_left_disk_ && all >= folder_.least_bytes)
      return file_of(device).home(position, layer, bytes);
  } catch (const HostOutOfMemory&) {
    throw;
  } catch (const c10::OutOfMemoryError& error) {
    leave_disk(error.what_without_backtrace());
  }
  return std::make_shared<KeptBlocks>(blocks_, device, homes_.of(place_, device), std::move(bytes));
}

KeptFile& ActivationHost::file_of(at::Device device) {
  auto& file = files_[device.index()];
  if (file == nullptr) file = std::make_shared<KeptFile>(device, folder_.path);
  return *file;
}

std::vector<std::string> ActivationHost::remarks() const {
  std::vector<std::string> all(why_left_.begin(), why_left_.end());
  for (const auto& [device, file] : files_)
    for (std::string& remark : file->remarks()) all.push_back(std::move(remark));
  return all;
}

}  // namespace spillway::trainer
