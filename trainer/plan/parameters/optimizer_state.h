// What an optimizer keeps of a parameter from step to step, as shapes.
//
// The estimate counts it and trainer/optimizer/ allocates it, so that the two agree.
//
// Thread-safety: pure functions. Errors: none.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "trainer/plan/numerics.h"

namespace spillway::trainer {

// Numbers that share a scale in an 8-bit state, and the elements from which on a parameter has such a state:
// of Dettmers et al., "8-bit Optimizers via Block-wise Quantization" (2022).
inline constexpr int64_t kQuantizationBlock = 256, kLeastQuantizedElements = 4096;

// An update goes through a parameter in tiles of about so many elements, where it needs room to compute in.
inline constexpr int64_t kTileElements = 1 << 18;

// A run of a parameter's elements.
struct Span {
  int64_t begin = 0, length = 0;
  bool operator==(const Span&) const = default;
};

struct StateTensor {
  std::string name;       // "master", "first", "second", "first.codes", "row", ...
  bool is_codes = false;  // of one byte each; else 32-bit floats
  std::vector<int64_t> sizes;
  // The parameter's elements that one of this tensor's belongs to. 0: it belongs to the parameter as a whole,
  // and is never read in tiles.
  int64_t elements_per_entry = 1;

  int64_t entries() const;
  uint64_t bytes() const { return static_cast<uint64_t>(entries()) * (is_codes ? 1 : 4); }
};

std::vector<StateTensor> optimizer_state(const Numerics& numerics, const std::vector<int64_t>& sizes);
// What of these is kept where `elements` of the parameter's are updated, in rows.
std::vector<StateTensor> kept_of(std::vector<StateTensor> states, int64_t elements);

// Whether a kernel updates and rounds a whole parameter without a master, in 16 bits, where it can be had.
bool rounds_at_once(const Numerics& numerics);
// Whether one updates a whole parameter of any kind: with the bits that a processor gives it.
bool updates_at_once(const Numerics& numerics);

// Elements of a tile of such a parameter: as near to kTileElements as whole blocks or rows allow, or all of
// them where the update needs no room.
int64_t tile_elements(const Numerics& numerics, const std::vector<int64_t>& sizes, bool states_on_host);

// A parameter, and what is updated of it, in order; tiles end where a span does, and at multiples of
// `tile_elements`.
struct UpdatedParameter {
  std::vector<int64_t> sizes;
  std::vector<Span> spans;

  int64_t elements() const;  // of the spans
  std::vector<StateTensor> kept(const Numerics& numerics) const;
};
// The tiles of an update, in order.
std::vector<Span> tiles_of(const Numerics& numerics, const UpdatedParameter& parameter, bool states_on_host);

// The same as runs of tiles of one length: a span has three at most.
struct TileRun {
  int64_t length = 0, count = 0;
};
std::vector<TileRun> tile_runs(const Numerics& numerics, const UpdatedParameter& parameter,
                               bool states_on_host);

// What the update of a parameter needs of its device, beside what it keeps. Bytes.
struct UpdateNeeds {
  uint64_t tiles = 0;
  uint64_t passing = 0;           // of the largest tile of its states, if these pass through the device
  uint64_t whole = 0;             // of the next states that it has as a whole
  uint64_t floats = 0, rows = 0;  // of the largest tile: to compute in, and a scale for each row
};
UpdateNeeds update_needs(const Numerics& numerics, const UpdatedParameter& parameter, bool states_on_host);

// What a device needs for an update of some parameters: the slots for tiles of states on the host or a disk,
// of which it has at most `slots`, and room to compute in.
class UpdateRoom {
 public:
  void add(const UpdateNeeds& needs);
  uint64_t bytes(uint64_t slots) const;

 private:
  UpdateNeeds most_{};
  uint64_t whole_ = 0, staged_ = 0;
};

}  // namespace spillway::trainer
