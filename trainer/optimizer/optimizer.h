// The optimizer: what it keeps of each parameter, wherever that lies, and an update in two phases.
//
// `prepare` reads and may allocate; it has no effect on the training and can be repeated. `commit` writes and
// allocates no device memory: it works in place, in tiles, and uses the gradients (which the step no longer
// needs) as scratch. Where layers are updated later, what was prepared stays until they are: everything here
// that reads or moves parameters or states has that update finished first. Parameters come to their device
// one layer after the other (Parameters::walk), and the states that are elsewhere pass through it in tiles
// beside them (tiles/tile_stream.h); or the host's processor updates what the host has. Every place of the
// states gives the same bits: what tiles have of each other is the same in each, or their numbers are
// independent. In mixed precision the master weights are a state like the moments: they are updated in 32
// bits, and rounded into the weights that the model computes with. Weights without a master are rounded
// stochastically, from random bits of (seed, update, parameter, position); of a matrix in 8 bits a tile is
// whole rows.
//
// The order is that of Micikevicius et al., "Mixed Precision Training" (2018): accumulate, check for an
// overflow, unscale, clip by the global norm, update.
//
// Thread-safety: one thread. Ownership: owns states, tiles and scratch; borrows the parameters. Errors:
// LibTorch's exceptions, from the constructor, `prepare`, `move_to`, `set_update_slots`, `relocate` and
// `set_states`; after one of them every state is in one place or the other, whole. RecordLost where a disk
// does not give states back: from `commit` it leaves weights of which some were updated, and there is nothing
// to go on with but a checkpoint.
#pragma once
#include <map>

#include "trainer/optimizer/host_number.h"
#include "trainer/optimizer/rounding/int8_rounding.h"
#include "trainer/optimizer/rounding/stochastic_rounding.h"
#include "trainer/optimizer/states/optimizer_states.h"
#include "trainer/optimizer/tiles/tile_stream.h"
#include "trainer/optimizer/update_rule.h"

namespace spillway::trainer {

// What one of several ranks does of an update.
struct UpdateShare {
  std::vector<std::vector<Span>> updated;    // of each parameter, in order and without a gap; empty: all
  std::vector<std::vector<Span>> measured;   // of which it measures the gradients; empty: all
  std::function<double(double)> over_ranks;  // the sum of all ranks' numbers
  std::function<void(size_t)> after_update;  // of a parameter, while its layer is on the device
};

class Optimizer {
 public:
  // Allocates the states, zero, where `place` says. `initial`: the weights in 32 bits on the host, for the
  // masters.
  Optimizer(Parameters& parameters, const TrainConfig& train, Place place, const InitialValues& initial,
            NvmeFolder folder = {}, const Homes& homes = {}, UpdateShare share = {});

  // Measures the gradients' norm, for the update of `step`, from 0. `loss_scale`: what the loss was
  // multiplied by.
  void prepare(uint64_t step, double loss_scale = 1);
  // What was measured of gradients before they left their device: they are to be other ones.
  void forget_norms() { norms_.assign(norms_.size(), {}); }
  // False after an overflow: nothing was updated. With `later` layers are updated before their next use, each
  // within it (Parameters::update_later); the numbers of the update are fixed now.
  using Later = std::function<void(const std::function<void()>& layer)>;
  bool commit(Later later = nullptr);
  // Of layers that wait for the last commit's update.
  void finish_update() { parameters_.finish_update(); }
  double gradient_norm() const { return norm_; }  // without the loss scale; not finite after an overflow
  uint64_t updates() const { return updates_; }   // that were made
  void set_updates(uint64_t updates) { updates_ = updates; }
  // What a person should know of how updates are computed, and of the disk that has their states.
  std::vector<std::string> remarks() const;

  void move_to(Place place, const Homes& homes = {});
  // Of each device, for states that are elsewhere (Plan::update_slots).
  void set_update_slots(uint32_t slots);
  // The host's processor updates what the host has all of, from the next `prepare` on. REQUIRES:
  // `updates_at_once` of the numerics.
  void set_updates_on_host(bool on_host);
  // The states of parameters that were relocated follow them.
  void relocate(size_t first, size_t count, at::Device device);

  // Of the whole states of a parameter.
  std::vector<StateTensor> state_shapes(size_t index) const;
  // What is kept of them, wherever it lies; those on a disk are read.
  std::vector<at::Tensor> states(size_t index);
  at::Tensor state(size_t index, size_t which);
  // Takes what is kept from whole states.
  void set_states(size_t index, const std::vector<at::Tensor>& values);
  bool has_masters() const { return train_.numerics.has_master_weights(); }
  // The weights in the most digits that there are: what is kept of the master where it lies, or else the
  // parameter on the host; of 8 bits as floats.
  at::Tensor weights(size_t index);

 private:
  // By the name of what is computed.
  using Scratch = std::map<std::string, at::Tensor>;
  struct Need {
    int64_t elements = 0;
    at::ScalarType type{};
  };
  using Needs = std::map<std::string, Need>;
  // A tile's tensors on its device.
  struct Here {
    at::Tensor value;  // as the parameter has it; not defined of a matrix in 8 bits
    Int8Weight rows;
    at::Tensor gradient;
    std::vector<at::Tensor> states;
  };

  TileStream::Home home();
  std::vector<TileStream::Stop> schedule() const;
  const std::vector<Span>& updated_at_once(size_t index) const;
  std::vector<at::Tensor> parts(const TileKey& key);
  Here here(const TileKey& key, const std::vector<at::Tensor>& states) const;
  Needs needs_of(int device) const;
  void prepare_scratch();
  static void fit(const Needs& needs, at::Device device, Scratch* scratch);
  void append_norms(size_t index, const Span& span, std::vector<at::Tensor>* norms);
  void measure(size_t index);
  void measure_norm(double loss_scale);
  Updated updated(size_t index) const;
  at::Tensor numbers(size_t index) const;  // that the model computes with
  void update(size_t index);
  void end_update();
  void update_tile(const TileKey& key, const Here& here);
  void apply(Tile* tile, const Here& here, int64_t length);
  at::Tensor in_floats(Scratch& scratch, const char* name, const at::Tensor& tile) const;
  at::Tensor read(const Here& here, int64_t length, Scratch& scratch);
  void store(const Tile& tile, const Here& here, Scratch& scratch);

  Parameters& parameters_;
  const TrainConfig train_;
  const UpdateShare share_;
  OptimizerStates states_;
  TileStream tiles_;
  uint32_t slots_ = kLeastUpdateSlots;
  bool on_host_ = false;
  std::map<int, Scratch> scratch_;  // by device index
  std::unique_ptr<UpdateRule> rule_;
  StochasticRounding rounding_;
  Int8Rounding int8_rounding_;
  HostNumber scale_;
  Update update_;
  std::vector<std::vector<at::Tensor>>
      norms_;  // of each parameter's gradient, in runs; none: not measured yet
  double norm_ = 0;
  uint64_t updates_ = 0;
};

}  // namespace spillway::trainer
