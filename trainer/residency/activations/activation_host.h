// Where the passes of a training keep what layers keep for their backward: the host, a peer or a disk.
//
// A disk that has no room, or does not give back what it was given, is left: the host has it from then on.
//
// Thread-safety: one thread at a time; homes are used as they say. Ownership: owns blocks and files until
// `move_to`, or until the last home is gone. Errors: HostOutOfMemory where the host has no buffers. Units:
// bytes.
#pragma once
#include <atomic>
#include <map>
#include <memory>
#include <set>

#include "trainer/residency/activations/host_blocks.h"
#include "trainer/residency/activations/kept_file.h"
#include "trainer/residency/homes/homes.h"
#include "trainer/residency/nvme/record_file.h"

namespace spillway::trainer {

class ActivationHost {
 public:
  // `least_bytes`: of a storage that goes there.
  ActivationHost(uint64_t least_bytes, NvmeFolder folder)
      : least_bytes_(least_bytes), folder_(std::move(folder)) {}

  // Of the plan from now on: no pass is under way. A disk that was left is tried again.
  void move_to(Place place, Homes homes);
  // The same plan goes on without its disk, for this reason.
  void leave_disk(const std::string& why);
  // For storages of these bytes that `layer` keeps on `device`, the `position`-th of its pass that keeps
  // something. It must not outlive this.
  std::shared_ptr<KeptHome> home(at::Device device, size_t position, uint32_t layer,
                                 std::vector<uint64_t> bytes);

  uint64_t least_bytes() const { return least_bytes_; }
  // Of blocks, held and free.
  uint64_t block_bytes() const { return blocks_.bytes(); }
  std::vector<std::string> remarks() const;

  std::atomic<uint64_t> bytes_to_host = 0, bytes_to_device = 0;

 private:
  KeptFile& file_of(at::Device device);

  const uint64_t least_bytes_;
  const NvmeFolder folder_;
  Place place_ = Place::kHost;
  Homes homes_;
  HostBlocks blocks_;
  std::map<int, std::shared_ptr<KeptFile>> files_;  // by device index
  bool has_left_disk_ = false;
  std::set<std::string> why_left_;
};

}  // namespace spillway::trainer
