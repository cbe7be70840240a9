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
// computes half. Copies to the host and between devices wait for what computes: their times are added.
//
// With several micro-batches under way devices compute at the same time. The first micro-batch passes through
// all of them; each further one comes after the slowest device's share of one, or after the way through all
// divided by the number that may be under way, whichever is longer (with as many as there are equal devices:
// Huang et al., "GPipe", 2019, section 2.3). One thread of the host launches for all devices.
//
// Thread-safety: pure functions. Errors: none; a plan that names a missing device counts on the last one.
// Units: bytes, seconds where no name says otherwise.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "trainer/plan/architecture.h"
#include "trainer/plan/numerics.h"
#include "trainer/plan/plan.h"

namespace spillway::trainer {

struct Shape {
  Architecture model;
  uint32_t batch = 0;  // rows per optimizer step
  Numerics numerics{};
  uint32_t layers() const { return model.all_layers(); }
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
  double memory_bytes_per_second = 800e9;  // of a device's own memory
  double launch_seconds = 5e-6;            // of the host, from one kernel to the next
  uint64_t device_bytes = 0;               // that the run may use of each device; 0: any number
  uint64_t host_bytes = 0;                 // and of the host
  std::vector<uint64_t>
      device_limits{};  // where devices may use different amounts; beyond its end, `device_bytes`

  // 0: any number.
  uint64_t limit_of(uint32_t device) const {
    return device < device_limits.size() ? device_limits[device] : device_bytes;
  }
};

// Where the time of a step goes, in seconds. The first three and `optimizer` are a device's. Nothing
// overlaps; where devices compute at the same time, each part is as much shorter as the whole.
struct StepTime {
  double compute = 0;   // operators whose arithmetic takes longest
  double memory = 0;    // ... whose reads and writes do
  double launches = 0;  // ... whose launches do
  double optimizer = 0;
  double host_link = 0;
  double peer_link = 0;
  double operations = 0;  // additions and multiplications, of all devices; no time

  double seconds() const { return compute + memory + launches + optimizer + host_link + peer_link; }
  // The largest part, in words: "compute", "device memory", "launches", "optimizer", "host link", "peer
  // link".
  const char* limit() const;
};

struct EstimateItem {
  std::string name;
  uint32_t device = 0;
  bool host = false;
  uint64_t bytes = 0;
};

struct Estimate {
  std::vector<EstimateItem> items;          // what is alive at the peak of a step, by device
  std::vector<uint64_t> device_peak_bytes;  // the sum of a device's items
  std::vector<uint64_t> evaluation_peak_bytes;
  uint64_t host_bytes = 0;
  StepTime time;
  std::vector<double> device_seconds;  // that each is busy in a micro-batch
  uint64_t step_us = 0;
  std::string to_text() const;  // a table for people
};

Estimate estimate(const Shape& shape, const Plan& plan, const Machine& machine);

// Of a step of `batch` rows.
uint32_t micro_batches(const Plan& plan, uint32_t batch);
// That are under way at a time: no more than there are.
uint32_t in_flight(const Plan& plan, uint32_t batch);

}  // namespace spillway::trainer
