// The parameters and their accumulated gradients, with exactly-once accumulation.
//
// Autograd's fresh gradient of a parameter is added to the accumulator here the moment it is ready, and
// freed. A ledger counts the micro-batches that each accumulator holds, so that a micro-batch whose backward
// was cut off half-way can be run again and reaches only those parameters that have not had it. Nothing of
// the gradients is copied for undo.
//
// The weights of layers, their accumulators, or both may live elsewhere, on the host, on a peer or on a disk.
// Then `value` and `gradient` are tensors of the device whose memory comes for a layer's use and goes behind
// it: in a pass, which `follow` announces, and in a `walk`. An accumulator that was added to and is not at
// home yet stays in its slot when a pass is cut off, so that the ledger holds. What comes and goes as one is
// a unit, a layer's part (trainer/plan/schedule.h). A unit's matrices may come in tiles instead
// (trainer/residency/tiles/tiled_matrix.h): `value` and `gradient` are then tensors without memory, and the
// numbers are there in `run` alone.
//
// Several ranks may have sums of gradients together, and the layers' weights too (`Residence::shares`): what
// was said of homes is then said of a rank's share of a unit. Its weights come whole to a slot for a use,
// from all ranks; what a backward has of its gradients goes to the shares of all ranks behind the use. What
// belongs to no layer has its weights whole, and its gradients until the micro-batch ends. Uses are then
// those that `follow` announced, in this order.
//
// An update may come to a unit later than to the others: right before the unit's next use, while its
// weights are on the device anyway (`update_later`). Until then its accumulator keeps the sum that the update
// needs, whatever is cleared; asking for what is stored, or moving it, has it finished first.
//
// Weights of a unit that are on the device may be whole only behind a mark: other ranks' parts of them come
// beside what is computed (`become_whole`). The unit's next use waits for it, and what reads or moves them.
//
// Thread-safety: one thread calls; hooks run on autograd's threads and touch only their own parameter.
// Between a failed backward and the next call of anything here, call `settle`. Ownership: owns parameters and
// accumulators. Errors: LibTorch's exceptions; RecordLost where a disk does not give a layer back;
// `relocate`, `leave_devices` and `come_to_devices` are all or nothing for one layer.
#pragma once
#include <array>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>

#include "trainer/model/initial_values.h"
#include "trainer/model/weights.h"
#include "trainer/plan/numerics.h"
#include "trainer/plan/parameters/optimizer_state.h"
#include "trainer/residency/homes/homes.h"
#include "trainer/residency/streamed_layers.h"
#include "trainer/residency/tiles/tiled_matrix.h"
#include "trainer/step/shares/shares.h"

namespace spillway::trainer {

// That the model computes in.
at::ScalarType weight_type(Precision precision);
// That gradients are added up in.
at::ScalarType gradient_type(const Numerics& numerics);

// Where parameters lie.
struct Residence {
  std::vector<int> units{};  // of each parameter its unit, or -1, which stays on its device; empty: all -1
  Place values = Place::kDevice, gradients = Place::kDevice;  // of the layers
  Homes homes{};                                              // for those on a peer
  NvmeFolder nvme{};                                          // for those on NVMe
  uint32_t tiles = 1;              // that matrices are cut into; one if either is on the device
  std::vector<Parameter> table{};  // of what is cut
  MatrixLayout layout = MatrixLayout::kOutIn;
  Shares shares{};
};

class Parameters {
 public:
  // `initial` in floats on the host; `devices[i]` is where parameter i goes, and `in_8_bits[i]` how it is
  // stored (empty: in floats). Allocates the accumulators.
  Parameters(std::vector<std::string> names, const InitialValues& initial,
             const std::vector<at::Device>& devices, const Numerics& numerics = {},
             const std::vector<bool>& in_8_bits = {}, const Residence& residence = {});
  Parameters(const Parameters&) = delete;

  size_t size() const { return values_.size(); }
  const std::string& name(size_t index) const { return names_[index]; }
  at::TensorList values() const { return values_; }
  const at::Tensor& value(size_t index) const { return values_[index]; }
  // nullptr where `value` has the numbers; else it is a leaf that stands for them.
  const Int8Weight* int8(size_t index) const { return int8_[index].defined() ? &int8_[index] : nullptr; }
  Weights weights() { return {values_, int8_, &uses_, tiled_}; }
  const at::Tensor& gradient(size_t index) const { return gradients_[index]; }

  // Gradients to zero, but for those that an update is still to read; no micro-batch accumulated.
  void clear_gradients();
  // From now on, backward passes are micro-batch `number`; with the last one accumulators are complete.
  void begin_micro_batch(uint32_t number, bool is_last = false);
  // Called by autograd's threads when an accumulator has a parameter's gradient of a micro-batch.
  void on_accumulated(std::function<void(size_t index, uint32_t micro_batch)> call) {
    accumulated_call_ = std::move(call);
  }
  // Called on the thread that computes with a unit, when its accumulators are complete and before they go
  // from their device to where they live: those of parameters [first, first + count). Not of units in tiles
  // or in shares.
  void on_leaving(std::function<void(size_t first, size_t count)> call) { leaving_call_ = std::move(call); }
  // Waits until no thread of autograd's runs a hook of a pass that failed, and drops fresh gradients that it
  // left.
  void settle();
  // Of ranks with shares: behind a micro-batch's backward, what belongs to no layer is added up.
  void end_micro_batch();
  // The uses that are left of a pass, computing nothing: all that ranks exchange of them. Gradients that are
  // not there count as zero. Allocates no device memory. REQUIRES: reserve().
  void pass_over();
  // Whether something of this step was added up.
  bool has_summed() const;

  // Throws std::logic_error unless every parameter holds exactly `micro_batches`.
  void check_complete(uint32_t micro_batches) const;
  // Another stage of a pipeline has it.
  bool is_empty(size_t index) const { return !tiled_[index] && values_[index].numel() == 0; }
  uint32_t accumulated(size_t index) const {
    return tiled_[index] ? tiled_[index]->accumulated() : accumulated_[index];
  }

  // Moves parameters [first, first + count) and their accumulators, of whole units, to `device`; on an
  // exception none is moved.
  void relocate(size_t first, size_t count, at::Device device);

  // The layers' weights and accumulators go where these places are away from the devices, and then to the
  // devices where they are there. That needs room for them beside the slots.
  void leave_devices(Place values, Place gradients, const Homes& homes);
  void come_to_devices(Place values, Place gradients, const Homes& homes);
  // Of units whose weights and accumulators are elsewhere: matrices in so many tiles; with 1 whole again.
  // What is accumulated stays. On an exception each unit is cut in the one way or the other.
  void set_tiles(uint32_t tiles);
  // What a person should know of the disk that layers are on.
  std::vector<std::string> remarks() const;
  // Slots, which are then there for the uses below.
  void reserve();
  // The coming passes use the units in this order. May allocate slots.
  void follow(const std::vector<UnitUse>& uses);
  // Calls `visit` for each parameter in order, with its gradient or with both on its device, or where they
  // are updated at home there. What it makes of the gradients is lost where they live on the host, unless it
  // is to change them; values are kept if it is an update. Units, of parameters [first, first + count), that
  // are not wanted stay where they are.
  enum class Walk : uint8_t { kReadGradients, kChangeGradients, kReadBoth, kUpdate };
  void walk(Walk kind, const std::function<void(size_t index)>& visit,
            const std::function<bool(size_t first, size_t count)>& wanted = nullptr);
  // In a visit: a parameter's numbers [begin, begin + length) and their accumulator, flat, until the next
  // run. A run begins and ends within one of `run_numbers`, a multiple of the optimizer's tiles.
  TiledMatrix::Run run(size_t index, int64_t begin, int64_t length);
  int64_t run_numbers(size_t index) const;
  // With each run that has some of the numbers [begin, begin + length): it begins with number `at`.
  void for_each_run(size_t index, int64_t begin, int64_t length,
                    const std::function<void(const TiledMatrix::Run& run, int64_t at)>& visit);
  bool is_tiled(size_t index) const { return tiled_[index] != nullptr; }
  // The same from the last unit to the first, a unit at a time, and at last -1: what belongs to none.
  void walk_back(Walk kind, const std::function<void(int unit)>& visit);
  // Where a run of a parameter's elements lies, in contiguous rows: its numbers, or codes and scales of whole
  // rows. REQUIRES: its unit is on the device, and it is not in tiles.
  std::vector<at::Tensor> rows_of(size_t index, const Span& span) const;

  // An update writes all values and reads none: those of units that are elsewhere need not come for it.
  void replace_in_updates(bool replaces) { replaces_ = replaces; }

  // Units of which this is true, of parameters [first, first + count), and whose weights and accumulators are
  // both on the host, are updated there: `run` gives the host's memory, and nothing comes to a device.
  // REQUIRES: what it says changes only while no unit waits for its update.
  using AtHome = std::function<bool(size_t first, size_t count)>;
  void update_at_home(AtHome at_home) { at_home_ = std::move(at_home); }
  bool is_updated_at_home(size_t index) const {
    return unit_of(index) >= 0 && updates_at_home(uint32_t(unit_of(index)));
  }

  // A walk that updates parameters of no layer now, and each unit's before its next forward.
  struct LaterUpdate {
    std::function<void(size_t index)> visit;
    std::function<void(const std::function<void()>& layer)> within;  // has it done
    std::function<void()> end;                                       // behind the last layer
  };
  void update_later(LaterUpdate update);
  // Updates what waits for it, behind all weights that are still to come. Allocates no device memory.
  void finish_update();
  // The weights of a unit, or with -1 of what belongs to none, which other ranks updated, are there behind
  // `mark`, and behind those of the unit before it; null: they are there. REQUIRES: stays_on_device(unit).
  void become_whole(int unit, CopyStream::Mark mark) {
    if (mark != nullptr) coming_[unit] = std::move(mark);
  }
  // Whether its weights are in no slot, and in no tiles.
  bool stays_on_device(int unit) const {
    return unit < 0 || (ranges_.at(uint32_t(unit)).tiles == 1 && !streamed_values_.has(uint32_t(unit)));
  }

  // The tensors that hold a parameter: its value, or codes and scales, with the ends of their names. They are
  // read and written wherever they live, one at a time; written before the next use.
  struct Stored {
    const char* ending;
    std::vector<int64_t> sizes;
    at::ScalarType type;
  };
  std::vector<Stored> stored(size_t index) const;
  // Whether other ranks have some of a parameter's weights; what this one has, in a row, on the host.
  bool is_shared(size_t index) const { return shares_.of_values && unit_of(index) >= 0; }
  at::Tensor read_share(size_t index);
  // REQUIRES: not is_shared(index).
  at::Tensor read_stored(size_t index, size_t which);  // a copy, on the host
  void write_stored(size_t index, size_t which, const at::Tensor& values);
  // FNV-1a of all bytes of all parameters, in order, which `read` gives; else of all that is kept here.
  using ReadStored = std::function<at::Tensor(size_t index, size_t which)>;
  uint64_t hash(const ReadStored& read) const;
  uint64_t hash();

 private:
  class Hook;
  class SharedHome;
  class Uses : public LayerUses {
   public:
    explicit Uses(Parameters& owner) : owner_(owner) {}
    bool wants(uint32_t unit) const override;
    void begin(uint32_t unit, Pass pass) override;
    void end(uint32_t unit, Pass pass) override;

   private:
    Parameters& owner_;
  };
  struct Range {
    size_t first = 0, count = 0;
    uint32_t tiles = 1;
  };
  enum class Role : uint8_t { kValues, kGradients };
  // A unit in other tiles, before it takes the place of what there is.
  struct CutUnit {
    std::vector<std::unique_ptr<TiledMatrix>> matrices;  // of each parameter, or none
    std::optional<LayerBlock> values, gradients;         // of the others
    bool are_zero = false;
  };
  using Tensors = std::vector<at::Tensor*>;
  // All bytes of a unit that is being updated at home.
  struct OpenHome {
    uint32_t unit = 0;
    at::Tensor values, gradients;
  };

  void add(const at::Tensor& initial, const Numerics& numerics, bool in_8_bits, const Residence& residence);
  void attach_hook(size_t index);
  void accumulate(size_t index);
  int unit_of(size_t index) const { return units_.empty() ? -1 : units_[index]; }
  std::string unit_name(uint32_t unit) const;  // for people
  // Of those that a rank keeps; of shares with `whole` what they are shares of.
  Tensors tensors_of_values(const Range& range, bool whole = false);
  Tensors tensors_of_gradients(const Range& range, bool whole = false);
  void stream(StreamedLayers* streamed, uint32_t unit, const Tensors& tensors, Place place,
              const Homes& homes, bool are_zero);
  void settle_on_device(StreamedLayers* streamed, uint32_t unit, const Tensors& tensors);
  void renew_leaves(const Range& range);
  bool has_shares() const { return shares_.exchange != nullptr; }
  void share_unit(uint32_t unit, Role role);
  at::Tensor& share_of(Role role, size_t index) {
    return (role == Role::kValues ? value_shares_ : gradient_shares_)[index];
  }
  at::Tensor own_part(const at::Tensor& share, size_t index, int64_t begin, int64_t length) const;
  CopyStream::Mark exchange(uint32_t unit, Role role, const at::Tensor& memory);
  void announce(const std::vector<UnitUse>& uses);
  void begin_announced(uint32_t unit, Pass pass) const;
  bool is_summed(int unit) const;
  void forget_gathered() const { gathered_values_.for_each(&LayerCache::forget); }
  // What a use of a layer brings to its device.
  const StreamedLayers& used_values() const {
    return shares_.of_values ? gathered_values_ : streamed_values_;
  }
  const StreamedLayers& used_gradients() const {
    return has_shares() ? summed_gradients_ : streamed_gradients_;
  }
  std::array<const StreamedLayers*, 4> all_streamed() const {
    return {&streamed_values_, &streamed_gradients_, &gathered_values_, &summed_gradients_};
  }
  StreamedLayers& streamed(Role role) {
    return role == Role::kValues ? streamed_values_ : streamed_gradients_;
  }
  at::Tensor at_home(Role role, size_t index);
  TiledMatrix::Bytes matrix_bytes(Role role, size_t index, const MatrixCut& cut);
  LayerBlock block_of(Role role, const std::vector<size_t>& parameters, bool* are_zero);
  void cut(uint32_t unit, Range* range, uint32_t tiles);
  CutUnit cut_unit(const Range& range, uint32_t tiles);
  void take_cut(uint32_t unit, Range* range, CutUnit cut);
  void follow_tiles(const std::vector<UnitUse>& uses);
  void walk_tiles(Walk kind);
  void close_run();
  std::vector<const at::Tensor*> tensors_of(size_t index) const;
  void visit_stored(size_t index, size_t which, bool writes,
                    const std::function<void(const at::Tensor&)>& visit) const;
  // One of the tensors that are kept of a parameter.
  void visit_tensor(size_t index, const at::Tensor& tensor, bool writes,
                    const std::function<void(const at::Tensor&)>& visit) const;
  static bool needs_values(Walk kind);
  void enter(Walk kind, size_t index);
  void leave(Walk kind, size_t index);
  void tell_of_leaving(uint32_t unit);
  void expect_new_values();
  void clear(uint32_t unit);
  bool waits_for_update(uint32_t unit) const;
  void wait_for_weights(int unit);
  void update_by_itself(uint32_t unit);
  void update(uint32_t unit);
  bool updates_at_home(uint32_t unit) const;
  void open_home(uint32_t unit);
  void close_home(uint32_t unit);
  TiledMatrix::Run run_at_home(const OpenHome& home, size_t index, int64_t begin, int64_t length) const;

  std::vector<std::string> names_;
  std::vector<at::Device> devices_;
  std::vector<int> units_;
  std::map<uint32_t, Range> ranges_;  // of units
  std::vector<at::Tensor> values_, gradients_;
  std::vector<Int8Weight> int8_;
  StreamedLayers streamed_values_{kWeightSlots, "parameters"},
      streamed_gradients_{kGradientSlots, "gradients"};
  const Shares shares_;
  std::vector<at::Tensor> value_shares_, gradient_shares_;  // rows; not defined where there is none
  StreamedLayers gathered_values_{kGatheredSlots, "parameters"}, summed_gradients_{kSumSlots, "gradients"};
  std::vector<UnitUse> uses_to_come_;  // of the pass that is under way
  size_t uses_done_ = 0;
  std::map<int, uint32_t> summed_;  // micro-batches of this step, by unit; -1: what belongs to none
  CopyStream::Mark outer_summed_, last_sum_;
  Place values_at_ = Place::kHost, gradients_at_ = Place::kHost;  // of units that are not on the device
  TileCaches tile_caches_;
  std::vector<std::unique_ptr<TiledMatrix>> tiled_;  // of each parameter, or none
  const std::vector<Parameter> table_;
  const MatrixLayout layout_;
  Walk walk_ = Walk::kReadGradients;  // that is under way
  TiledMatrix* open_ = nullptr;       // of which a run is there
  Uses uses_{*this};
  LaterUpdate later_;
  std::deque<uint32_t> waiting_;            // units that it has not come to, in their order
  std::map<int, CopyStream::Mark> coming_;  // of units, or -1: when all weights are there
  std::vector<uint32_t> accumulated_;
  std::function<void(size_t, uint32_t)> accumulated_call_;
  std::function<void(size_t, size_t)> leaving_call_;
  uint32_t micro_batch_ = 0;
  bool is_last_ = false, replaces_ = false;
  AtHome at_home_;
  std::optional<OpenHome> open_home_;
};

}  // namespace spillway::trainer
