// What layers whose weights or gradients live on the host need: slots on their devices, bytes of the host,
// and copies over the link.
//
// Thread-safety: pure. Ownership: borrows nothing. Errors: none. Units: bytes.
#pragma once
#include <vector>

#include "trainer/plan/estimate.h"
#include "trainer/plan/parameters/parameter_table.h"
#include "trainer/plan/parameters/weight_storage.h"
#include "trainer/plan/schedule.h"

namespace spillway::trainer {

class LayerStreams {
 public:
  // A plan that names a device from `devices` on counts on the last one.
  LayerStreams(const Shape& shape, const Plan& plan, uint32_t devices, const std::vector<Parameter>& table);

  struct Roles {
    uint64_t weights = 0, gradients = 0;
  };
  const std::vector<Roles>& slots() const { return slots_; }  // by device
  const Roles& on_host() const { return on_host_; }

  struct Copies {
    uint64_t in = 0, out = 0;  // bytes to the devices, and to the host
    uint64_t count = 0;        // of both
    double seconds(const Machine& machine) const {
      return double(std::max(in, out)) / machine.host_bytes_per_second +
             double(count) * machine.launch_seconds;
    }
  };
  Copies of_passes(uint32_t micro_batches) const;
  // The norm of the gradients, and the update. Where layers are updated before their next forward, without
  // the copies that pass beside that: those are in `of_passes`.
  Copies of_update() const;

 private:
  Copies of_device(uint32_t micro_batches, const std::vector<LayerUse>& uses) const;

  const bool weights_, gradients_, prepares_, just_in_time_;
  std::vector<LayerBytes> layers_;
  std::vector<std::vector<LayerUse>> uses_;  // of a micro-batch, by device
  std::vector<Roles> slots_;
  Roles on_host_;
};

}  // namespace spillway::trainer
