// What a plan needs, from shapes alone: pure, itemised, without LibTorch and without a device.
//
// The count is a dry run of the step: the operators of the model's forward and backward with their sizes, in
// the numbers of the precision, and what autograd keeps of each (trainer/plan/tapes/tape.h). Not counted:
// rounding and fragmentation of the allocator. tests/trainer/estimates.py measures how far it is off.
//
// The time of a step is a roofline over the same dry run: each operator takes as long as its arithmetic, its
// bytes or its launches, whichever is longest (Williams et al., "Roofline", 2009). A product of [n, k] by [k,
// m] is 2nkm operations in the forward and twice as many in the backward (Kaplan et al., "Scaling Laws for
// Neural Language Models", 2020, section 2.1); an attention has two such products, of which a causal one
// computes half. Copies of layers' inputs between devices wait for what computes: their times are added. The
// optimizer's states pass the link while tiles are updated, one direction beside the other, and a disk while
// they pass the link: of each the time is added that the one before does not hide. Of layers whose weights or
// gradients live on the host, on a peer or on a disk a pass takes as long as it, or their copies, or their
// reads and writes, would. Copies of activations run beside it: what it waits for them is added. The link has
// its rate in both directions at once.
//
// With several micro-batches under way devices compute at the same time. The first micro-batch passes through
// all of them; each further one comes after the slowest device's share of one, or after the way through all
// divided by the number that may be under way, whichever is longer (with as many as there are equal devices:
// Huang et al., "GPipe", 2019, section 2.3). One thread of the host launches for all devices.
//
// Thread-safety: pure functions. Errors: none; a plan that names a missing device counts on the last one.
// Units: bytes, seconds where no name says otherwise.
#pragma once
#include <algorithm>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "trainer/plan/architecture.h"
#include "trainer/plan/numerics.h"
#include "trainer/plan/parameters/tile_record.h"
#include "trainer/plan/plan.h"
#include "trainer/plan/ranks/rank_links.h"
#include "trainer/plan/stages/stage.h"

namespace spillway::trainer {

// What is smaller is not worth a copy to the host: at 25 GB/s one of 1 MiB takes 42 µs, a few launches.
inline constexpr uint64_t kOffloadLeastBytes = 1 << 20;

struct Shape {
  Architecture model;
  uint32_t batch = 0;  // rows per optimizer step
  Numerics numerics{};
  uint64_t offload_least_bytes = kOffloadLeastBytes;  // of a storage that the plan's `offload` is of
  // Processes that have the same layers and other rows, of which this is one; and the stage of ZeRO: from 1
  // on a rank has the optimizer's states of its share alone (trainer/plan/parameters/partition.h).
  uint32_t ranks = 1, zero = 0;
  Stage stage{};  // of a pipeline over ranks, of which all that is counted is
  uint32_t first_layer() const { return stage.first; }
  uint32_t end_layer() const { return std::min(stage.end, model.all_layers()); }
  uint32_t layers() const { return end_layer() - first_layer(); }
  // That the loss is of, in a step; with padding, where targets are padded.
  uint64_t tokens() const { return uint64_t{batch} * model.target_tokens(); }
};

// The rates are what is achieved, not what a data sheet promises.
struct Machine {
  uint32_t devices = 1;
  uint64_t workspace_bytes = 0;            // of the library of products, while it computes one
  double flops = 20e12;                    // of a device, in the precision of the products
  double host_bytes_per_second = 20e9;     // device ↔ host
  double peer_bytes_per_second = 50e9;     // device ↔ device
  bool has_peer_access = true;             // devices reach each other's memory; else copies pass the host
  double memory_bytes_per_second = 800e9;  // of a device's own memory
  double launch_seconds = 5e-6;            // of the host, from one kernel to the next
  // Of an NVMe disk. Four drives of PCIe 4.0 read 10 and write 5 GB/s by the figures of DeepNVMe.
  double nvme_read_bytes_per_second = 2.5e9, nvme_write_bytes_per_second = 1.25e9;
  double host_memory_bytes_per_second = 25e9;  // that its processor reads and writes in an update
  uint64_t nvme_least_bytes = kLeastOnNvme;    // of what goes there: a parameter's states, a layer's weights
  uint64_t device_bytes = 0;                   // that the run may use of each device; 0: any number
  uint64_t host_bytes = 0;                     // and of the host
  std::vector<uint64_t>
      device_limits{};        // where devices may use different amounts; beyond its end, `device_bytes`
  bool host_is_apart = true;  // false: the device is the CPU, whose memory is the host's
  RankLinks rank_links{};     // between the ranks of a training

  // 0: any number.
  uint64_t limit_of(uint32_t device) const {
    return device < device_limits.size() ? device_limits[device] : device_bytes;
  }
};

// Where the time of a step goes, in seconds. The first three and `optimizer` are a device's, or
// `optimizer` the host's, where that updates; what another part hides is in none. `streamed` overlaps with
// the first three: a step takes the longer of the two. Where devices compute at the same time, each part is
// as much shorter as the whole.
struct StepTime {
  double compute = 0;   // operators whose arithmetic takes longest
  double memory = 0;    // ... whose reads and writes do
  double launches = 0;  // ... whose launches do
  double optimizer = 0;
  double host_link = 0;
  double peer_link = 0;
  double streamed = 0;  // copies of layers to the host or a peer and back, of the direction that takes longer
  bool streams_over_peers = false;  // most of that is over the links between devices
  double nvme = 0;
  double ranks = 0;         // what ranks exchange
  double operations = 0;    // additions and multiplications, of all devices; no time
  double overlapped = 0;    // copies away and back that run beside what is computed; not in the sum
  double ranks_hidden = 0;  // likewise, of what ranks exchange

  // Of the passes alone, without the copies beside them.
  double passes() const { return compute + memory + launches; }
  double seconds() const {
    return std::max(passes(), streamed) + optimizer + host_link + peer_link + nvme + ranks;
  }
  // The largest part, in words: "compute", "device memory", "launches", "optimizer", "host link", "peer
  // link", "NVMe", "ranks".
  const char* limit() const;
};

struct EstimateItem {
  std::string name;
  uint32_t device = 0;
  bool host = false;
  uint64_t bytes = 0;
  bool nvme = false;
  std::string place() const;  // "device 0", "host", "NVMe"
};

struct Estimate {
  std::vector<EstimateItem> items;          // what is alive at the peak of a step, by device
  std::vector<uint64_t> device_peak_bytes;  // the sum of a device's items
  std::vector<uint64_t> evaluation_peak_bytes;
  uint64_t host_bytes = 0;
  uint64_t nvme_bytes = 0;
  uint64_t sent_bytes = 0;  // to other ranks, in a step
  StepTime time;
  std::vector<double> device_seconds;  // that each is busy in a micro-batch
  uint64_t step_us = 0;
  std::string to_text() const;  // a table for people
};

Estimate estimate(const Shape& shape, const Plan& plan, const Machine& machine);

// The same for many plans of one shape: what several have in common is counted once. One thread.
class Estimator {
 public:
  Estimator(const Shape& shape, const Machine& machine);
  ~Estimator();
  Estimate of(const Plan& plan);

 private:
  struct Common;
  class Counter;
  const std::unique_ptr<Common> common_;
};

// Of a step of `batch` rows.
uint32_t micro_batches(const Plan& plan, uint32_t batch);
// Whether the host's processor updates the layers.
bool updates_on_host(const Plan& plan, const Shape& shape);
// That are under way at a time: no more than there are, and one where layers pass to the host and back.
uint32_t in_flight(const Plan& plan, uint32_t batch);
// The same of a stage of a pipeline over ranks.
uint32_t in_flight(const Plan& plan, const Shape& shape);

}  // namespace spillway::trainer
