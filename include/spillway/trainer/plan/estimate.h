// What a plan needs, from shapes alone: pure, itemised, without LibTorch and without a device.
//
// The count is a dry run of the step: the operators of the model's forward and backward with their sizes, in
// 32-bit floats, and what autograd keeps of each (trainer/plan/tape.h). Not counted: rounding and
// fragmentation of the allocator. tests/trainer/estimates.py measures how far it is off.
//
// Thread-safety: pure functions. Errors: none; a plan that names a missing device counts on the last one.
// Units: bytes, microseconds.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "spillway/trainer/plan/architecture.h"
#include "spillway/trainer/plan/numerics.h"
#include "spillway/trainer/plan/plan.h"

namespace spillway::trainer {

struct Shape {
  Architecture model;
  uint32_t batch = 0;  // rows per optimizer step
  Numerics numerics{};
  uint32_t layers() const { return model.all_layers(); }
};

struct Machine {
  uint32_t devices = 1;
  uint64_t workspace_bytes = 0;         // of the library of products, while it computes one
  double flops = 20e12;                 // of a device, achieved
  double host_bytes_per_second = 20e9;  // device ↔ host
  double peer_bytes_per_second = 50e9;  // device ↔ device
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
  uint64_t step_us = 0;
  std::string to_text() const;  // a table for people
};

Estimate estimate(const Shape& shape, const Plan& plan, const Machine& machine);

}  // namespace spillway::trainer
