// What layers whose weights or gradients live on the host, on a peer or on a disk need: slots on their
// devices for their units, bytes there, copies over the links, reads and writes.
//
// Thread-safety: pure. Ownership: borrows nothing. Errors: none. Units: bytes.
#pragma once
#include <vector>

#include "trainer/plan/estimate.h"
#include "trainer/plan/parameters/parameter_table.h"
#include "trainer/plan/parameters/weight_storage.h"
#include "trainer/plan/ranks/kept_parameters.h"
#include "trainer/plan/schedule.h"

namespace spillway::trainer {

class LayerStreams {
 public:
  // A plan that names a device from `devices` on counts on the last one.
  LayerStreams(const Shape& shape, const Plan& plan, uint32_t devices, const KeptParameters& kept,
               uint64_t nvme_least_bytes);

  struct Roles {
    uint64_t weights = 0, gradients = 0;
  };
  const std::vector<Roles>& slots() const { return slots_; }  // by device
  // What layers of each device have on its peer; what all have on the host and on the disk.
  const std::vector<Roles>& on_peers() const { return on_peers_; }
  const Roles& on_host() const { return on_host_; }
  const Roles& on_nvme() const { return on_nvme_; }
  // Of the host, that layers pass through on their way to the disk and from there.
  const Roles& buffers() const { return buffers_; }

  struct Copies {
    uint64_t in = 0, out = 0;            // bytes to the devices, and to the host
    uint64_t peer_in = 0, peer_out = 0;  // the same from and to peers
    uint64_t count = 0;                  // of all
    uint64_t read = 0, written = 0;      // bytes of the disk
    double over_host(const Machine& machine) const {
      return double(std::max(in, out)) / machine.host_bytes_per_second;
    }
    double over_peers(const Machine& machine) const {
      return double(std::max(peer_in, peer_out)) / machine.peer_bytes_per_second;
    }
    uint64_t& in_from(Place place) { return place == Place::kPeer ? peer_in : in; }
    uint64_t& out_to(Place place) { return place == Place::kPeer ? peer_out : out; }
    double seconds(const Machine& machine) const {
      return over_host(machine) + over_peers(machine) + double(count) * machine.launch_seconds;
    }
    double disk_seconds(const Machine& machine) const {
      return double(read) / machine.nvme_read_bytes_per_second +
             double(written) / machine.nvme_write_bytes_per_second;
    }
  };
  Copies of_passes(uint32_t micro_batches) const;
  // The norm of the gradients, and the update. Where layers are updated before their next forward, without
  // the copies that pass beside that: those are in `of_passes`.
  Copies of_update() const;

 private:
  void add_device(uint32_t micro_batches, uint32_t device, Copies* copies) const;

  bool is_on_nvme(Place place, uint64_t bytes) const;
  void add_home(Place place, uint32_t device, uint64_t bytes, uint64_t Roles::* role);
  // What has a home of its own: the block of a unit, or a matrix in tiles.
  struct Home {
    uint32_t device = 0;
    Roles bytes{};
  };
  using HomeList = std::vector<Home>;
  void add_homes(const UnitBytes& unit, uint32_t device);
  void add_slots(uint32_t devices);
  uint64_t buffers_of(const HomeList& homes, uint32_t device, Place place, uint64_t Roles::* role) const;
  std::vector<uint32_t> matrices_in(const std::vector<UnitUse>& uses, bool backward_alone) const;
  void add_tiles(uint32_t micro_batches, const std::vector<UnitUse>& uses, Copies* copies) const;
  // Of the disk, when these come to the host in this order again and again.
  uint64_t read_bytes(Place place, const HomeList& homes, std::vector<uint32_t> fetched,
                      uint64_t Roles::* role) const;
  // The same for all in their order.
  uint64_t read_of_all(Place place, uint64_t Roles::* role) const;

  struct Streamed {
    bool weights = false, gradients = false;
  };
  const Place weights_at_, gradients_at_;
  const bool in_out_, prepares_;
  const uint64_t nvme_least_bytes_;
  const bool just_in_time_, updates_at_home_;  // layers' updates
  const bool measured_at_leaving_;             // gradients, by the step (Parameters::on_leaving)
  const bool replaced_;                        // weights, by an update that does not read them
  std::vector<Streamed> streamed_;             // by device
  std::vector<UnitBytes> units_;
  HomeList blocks_, matrices_;              // of all units, in order
  std::vector<uint32_t> first_matrix_;      // of each unit
  std::vector<std::vector<UnitUse>> uses_;  // of a micro-batch, by device
  std::vector<Roles> slots_, on_peers_;     // by device
  Roles on_host_, on_nvme_, buffers_;
  Roles copied_, count_;  // of all layers that are elsewhere: their bytes without rounding, their copies
  uint64_t tiled_weights_ = 0, runs_ = 0;  // of matrices in tiles: their bytes, and runs of their update
};

}  // namespace spillway::trainer
