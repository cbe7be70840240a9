// What one layer keeps, in blocks of the host or of a peer: one for each storage.
//
// Thread-safety, ownership, errors: as KeptHome's; the blocks go back with it.
#pragma once
#include "trainer/residency/activations/host_blocks.h"
#include "trainer/residency/activations/kept_home.h"

namespace spillway::trainer {

class KeptBlocks : public KeptHome {
 public:
  // `blocks` outlive it. `home`: the CPU, which is the host, or a peer of `device`.
  KeptBlocks(HostBlocks& blocks, at::Device device, at::Device home, std::vector<uint64_t> bytes)
      : blocks_(blocks), device_(device), home_(home), bytes_(std::move(bytes)) {}
  ~KeptBlocks() override;
  KeptBlocks(const KeptBlocks&) = delete;

  void write(CopyStream& by, const Copies& copies) override;
  void read(CopyStream& by, const Copies& copies) override;

 private:
  void copy(const Copies& copies);

  HostBlocks& blocks_;
  const at::Device device_, home_;
  const std::vector<uint64_t> bytes_;
  std::vector<HostBlocks::Block> taken_;
};

}  // namespace spillway::trainer
