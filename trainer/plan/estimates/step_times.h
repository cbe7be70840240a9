// Where the time of a step goes, counted part by part: the passes, the update, the copies, the ranks.
//
// Thread-safety: one thread. Ownership: borrows what it is made of. Errors: none. Units: bytes, seconds.
#pragma once
#include <vector>

#include "trainer/plan/estimate.h"
#include "trainer/plan/estimates/late_updates.h"
#include "trainer/plan/estimates/update_kernels.h"
#include "trainer/plan/ranks/exchange_time.h"
#include "trainer/plan/streams.h"
#include "trainer/plan/tapes/tape.h"

namespace spillway::trainer {

// In this order: the passes, the update of each parameter in the table's order, its end, the exchange.
class StepTimes {
 public:
  StepTimes(const Shape& shape, const Plan& plan, const Machine& machine, const LayerStreams& streams)
      : shape_(shape), plan_(plan), machine_(machine), streams_(streams) {}

  // Of a whole micro-batch, and of one of the rows that are left, if there are any. `busy`: by device.
  void add_passes(const Memory& whole, const Memory* rest, const std::vector<double>& busy);

  // Of a stage of a pipeline: it waits while the first micro-batch comes to the last stage, and the last
  // one's gradients to the first, and for messages, which nothing hides.
  void add_stages(const Memory& whole);

  // What is updated of a parameter.
  struct Update {
    double elements = 0, of_all = 0;  // of the parameter's
    double stored_bytes = 0;          // of all of them
    double state_bytes = 0, state_tensors = 0, tiles = 0;
    UpdateKernels kernels{};
    int unit = -1;           // of the parameter (units_of)
    bool elsewhere = false;  // the states
    bool on_host = false;    // the update
  };
  void add_update(const Update& update);
  // `first`: the micro-batch whose forward late updates are in.
  void end_update(uint64_t states_on_nvme, const Memory& first);

  // Of the first micro-batch and of the last one. Returns what a rank sends.
  uint64_t add_exchange(const RankExchange& exchange, const Memory& first, const Memory& last);

  const StepTime& time() const { return time_; }

 private:
  double overlap(const Memory& whole, const std::vector<double>& busy) const;
  double shown_by_states(const Memory& first);
  void add_late(const Update& update, double seconds);
  bool is_on_host() const { return updates_on_host(plan_, shape_); }
  bool has_late_updates() const {
    return plan_.slots_of_update() > kLeastUpdateSlots || (plan_.just_in_time && is_on_host());
  }
  void add(const StepTime& part, double times, double share);
  void add_streams(uint64_t states_on_nvme);
  std::vector<double> updates() const;

  const Shape& shape_;
  const Plan& plan_;
  const Machine& machine_;
  const LayerStreams& streams_;
  StepTime time_;
  // Of the update: a direction of the link to where states are; the host, which queues kernels and copies.
  double link_ = 0, queue_ = 0;
  double on_host_ = 0;                      // of its processor, that updates
  double waits_ = 0;                        // for other stages
  double update_seconds_ = 0;               // without the disk and without layers' copies
  std::vector<double> of_parameters_{};     // on the device alone
  std::vector<LateUpdate> late_updates_{};  // what belongs to no layer, and the units; the forward not yet
};

}  // namespace spillway::trainer
