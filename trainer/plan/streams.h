// What layers whose weights or gradients live on the host, or on a peer, need: slots on their devices, bytes
// there, and copies over the link.
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
  // What layers of each device have on the host, or on its peer.
  const std::vector<Roles>& away() const { return away_; }

  struct Copies {
    uint64_t in = 0, out = 0;            // bytes to the devices, and to the host
    uint64_t peer_in = 0, peer_out = 0;  // the same from and to peers
    uint64_t count = 0;                  // of all
    double over_host(const Machine& machine) const {
      return double(std::max(in, out)) / machine.host_bytes_per_second;
    }
    double over_peers(const Machine& machine) const {
      return double(std::max(peer_in, peer_out)) / machine.peer_bytes_per_second;
    }
    double seconds(const Machine& machine) const {
      return over_host(machine) + over_peers(machine) + double(count) * machine.launch_seconds;
    }
  };
  Copies of_passes(uint32_t micro_batches) const;
  // The norm of the gradients, and the update.
  Copies of_update() const;

 private:
  void add_device(uint32_t micro_batches, uint32_t device, Copies* copies) const;

  struct Streamed {
    bool weights = false, gradients = false;
  };
  const bool weights_on_peers_, gradients_on_peers_, prepares_;
  std::vector<Streamed> streamed_;  // by device
  std::vector<LayerBytes> layers_;
  std::vector<std::vector<LayerUse>> uses_;  // of a micro-batch, by device
  std::vector<uint32_t> count_;              // layers, by device
  std::vector<Roles> slots_, away_;
};

}  // namespace spillway::trainer
