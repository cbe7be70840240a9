// A matrix of which a device has a tile at a time: its weights, and the accumulator of their gradients.
//
// Tiles of rows and of columns, and runs of numbers for the update, are views of the same bytes at home, and
// come to the slots of a LayerCache each by itself. Between passes and updates the caches turn
// (LayerCache::turn): nothing is on the device then that is elsewhere otherwise.
//
// Each tile of the accumulator has a ledger of its own. A pass that was cut off half-way through a matrix can
// be run again, and adds to those tiles alone that have not had it.
//
// Thread-safety: that of a LayerCache. Ownership: shares the bytes; borrows the caches. Errors: LibTorch's
// exceptions; those of the bytes' homes.
#pragma once
#include <c10/util/FunctionRef.h>

#include "trainer/plan/parameters/tiles.h"
#include "trainer/residency/streamed_layers.h"
#include "trainer/residency/tiles/matrix_bytes.h"

namespace spillway::trainer {

// Of all matrices of a training.
struct TileCaches {
  StreamedLayers values{kTileSlots, "parameters"}, gradients{kGradientSlots, "gradients"};
  uint32_t next_key = 0;
  uint32_t micro_batch = 0;  // that backward passes are of

  void turn() const { values.for_each(&LayerCache::turn), gradients.for_each(&LayerCache::turn); }
  void let_go() const { values.for_each(&LayerCache::let_go), gradients.for_each(&LayerCache::let_go); }
  void reserve() const { values.for_each(&LayerCache::reserve), gradients.for_each(&LayerCache::reserve); }
  void close_unused_files() { values.close_unused_files(), gradients.close_unused_files(); }
};

class TiledMatrix {
 public:
  using Cut = MatrixBytes::Cut;
  using Bytes = std::shared_ptr<MatrixBytes>;

  // `accumulated`: micro-batches that the gradient has.
  TiledMatrix(TileCaches* caches, const MatrixCut& cut, Bytes value, Bytes gradient, uint32_t accumulated,
              at::Device device);
  ~TiledMatrix();
  TiledMatrix(const TiledMatrix&) = delete;

  const MatrixCut& cut() const { return cut_; }
  // At home all is up to date; the caches turn. The bytes may be written before the next use.
  const Bytes& value() const;
  const Bytes& gradient() const;

  // Homes for another device, which have the bytes, and the matrix with them. Tiles keep what they have
  // accumulated.
  struct Homes {
    std::shared_ptr<LayerHome> value, gradient;
  };
  Homes homes_for(at::Device device) const;
  void move_to(at::Device device, Homes homes);
  // To other homes, where they are not there already. On an exception each is in the one or the other.
  void move_home(Place value, Place gradient);

  // The keys of a use, in its order.
  void append_keys(Cut cut, std::vector<uint32_t>* keys) const;

  // With each tile of weights in turn, on the device for as long; it has lines [first, first + count).
  using Compute = c10::function_ref<void(const at::Tensor& tile, int64_t first, int64_t count)>;
  void for_each_tile(Cut cut, Compute compute) const;
  // Adds what `fresh` makes for rows [first, first + count) to each tile that has not had this micro-batch.
  using Fresh = c10::function_ref<at::Tensor(int64_t first, int64_t count)>;
  void accumulate(Fresh fresh);
  // Micro-batches that each of its tiles has at least.
  uint32_t accumulated() const { return *std::ranges::min_element(accumulated_); }
  // The ledger alone: of no micro-batch.
  void begin_anew() { std::ranges::fill(accumulated_, 0); }
  // The accumulator to zero; what it was is lost.
  void clear();
  // Tiles of the accumulator that are zero get their bytes, for runs of the update.
  void fill_zero() const;

  // Numbers [begin, begin + length), within an update's run, on the device until the next `open` or `close`.
  struct Run {
    at::Tensor value, gradient;  // flat; the value where it is asked for
  };
  // kChange: what is made of the gradient is kept. Of an update the gradient's bytes are lost.
  enum class Access : uint8_t { kGradient, kChange, kBoth, kUpdate };
  Run open(int64_t begin, int64_t length, Access access);
  void close();
  void forget_open() { open_.reset(); }  // of a walk that was cut off

 private:
  struct Open {
    int64_t run = 0;
    Access access{};
  };
  int64_t tiles(Cut cut) const;
  MatrixBytes::Tile tile(Cut cut, int64_t number) const;
  uint32_t key(Cut cut, int64_t number) const;
  uint32_t end_key() const { return key(Cut::kUpdate, cut_.update_tiles()); }
  void synchronise() const;
  void enter(at::Device device);
  static bool needs_value(Access access) { return access == Access::kBoth || access == Access::kUpdate; }

  TileCaches* const caches_;
  const MatrixCut cut_;
  const Bytes value_, gradient_;
  const uint32_t first_key_;
  at::Device device_;
  std::vector<uint32_t> accumulated_;  // of each tile of rows
  std::optional<Open> open_;
};

}  // namespace spillway::trainer
