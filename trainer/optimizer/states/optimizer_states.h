// What the optimizer keeps of each parameter, and where: beside the parameter, on a peer, on the host in
// page-locked memory, or in records on an NVMe disk. Of several ranks one may keep some of a parameter's
// elements alone.
//
// Thread-safety: one thread, which has no copy under way to or from what is asked for. Ownership: owns the
// states; borrows the parameters. Errors: LibTorch's exceptions, of running out of memory or of a disk's
// space among them; after one of them the states of each parameter are in one place or the other, whole.
#pragma once
#include <functional>

#include "trainer/optimizer/states/nvme_states.h"
#include "trainer/plan/parameters/tile_record.h"
#include "trainer/plan/plan.h"
#include "trainer/residency/homes/homes.h"
#include "trainer/step/parameters.h"

namespace spillway::trainer {

inline at::ScalarType type_of(const StateTensor& state) {
  return state.is_codes ? at::kByte : at::kFloat;
}
inline bool is_tiled(const StateTensor& state) {
  return state.elements_per_entry > 0;
}
// What of a state belongs to a tile.
inline at::Tensor part_of(const at::Tensor& tensor, const StateTensor& state, int64_t begin, int64_t length) {
  return tensor.view({-1}).narrow(0, begin / state.elements_per_entry, entries_of(state, length));
}
// Numbers at a place in a row of bytes.
at::Tensor view_at(const at::Tensor& bytes, uint64_t offset, at::ScalarType type, int64_t numbers);
// A tile's states in a row of bytes, in the order of those that are read in tiles.
std::vector<at::Tensor> parts_in(const at::Tensor& bytes, const std::vector<StateTensor>& states,
                                 int64_t length);

class OptimizerStates {
 public:
  struct Of {
    UpdatedParameter updated;         // without a gap
    std::vector<StateTensor> shapes;  // of what is kept
    std::vector<at::Tensor> tensors;  // those in records are not defined
    std::vector<Record> records;      // of its tiles
    std::vector<Span> tiles;          // of an update
    int64_t tile = 0;                 // elements of the largest
    Place place = Place::kDevice;     // of those that are read in tiles
    at::Device home = at::kCPU;       // of all that are no records: its device, a peer, or the host

    int64_t first() const { return updated.spans.empty() ? 0 : updated.spans.front().begin; }
    // What of a kept state belongs to a tile.
    at::Tensor part(const at::Tensor& tensor, const StateTensor& state, const Span& of) const {
      return part_of(tensor, state, of.begin - first(), of.length);
    }
  };

  // Zero, and masters from `initial`, the weights in 32 bits on the host. `updated`: of each parameter the
  // elements whose states are kept; empty: all.
  OptimizerStates(const Parameters& parameters, const Numerics& numerics, Place place, const Homes& homes,
                  const InitialValues& initial, NvmeFolder folder,
                  const std::vector<std::vector<Span>>& updated = {});

  size_t size() const { return of_.size(); }
  const Of& of(size_t index) const { return of_[index]; }
  void move_to(Place place, const Homes& homes);
  // States beside a parameter follow it.
  void relocate(size_t first, size_t count, at::Device device);

  // All that is kept: what is in records is read.
  std::vector<at::Tensor> read(size_t index);
  at::Tensor read(size_t index, size_t state);
  // From whole states.
  void write(size_t index, const std::vector<at::Tensor>& values);

  // The records of an update, and buffers for them.
  void prepare();
  bool uses_nvme() const { return nvme_in_use_; }
  NvmeStates& nvme() { return nvme_; }
  const NvmeStates& nvme() const { return nvme_; }

 private:
  // Sets the part of a state of one tile.
  using Source = std::function<void(size_t state, const Span& tile, const at::Tensor& to)>;

  std::vector<Span> tiles_elsewhere(size_t index) const {
    return tiles_of(numerics_, of_[index].updated, true);
  }
  struct Where {
    Place place{};
    at::Device home = at::kCPU;
  };
  Where where(size_t index, Place place, const Homes& homes) const;
  void place_initially(size_t index, const at::Tensor& initial);
  at::Tensor made(size_t index, size_t state, const Where& where) const;
  void move(size_t index, const Where& to);
  void reserve_records(const std::vector<size_t>& indices);
  std::vector<Record> records_of(size_t index);
  void to_records(size_t index, const Source& source);
  static void read_tile(const Of& of, size_t tile, const at::Tensor& bytes,
                        const std::vector<at::Tensor>& to);
  void set_tiles(size_t index);

  const Parameters& parameters_;
  const Numerics numerics_;
  const uint64_t least_on_nvme_;
  std::vector<Of> of_;
  NvmeStates nvme_;
  bool nvme_in_use_ = false;
};

}  // namespace spillway::trainer
