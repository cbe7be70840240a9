// A matrix of which the host has all, and a device a tile at a time: its weights, and the accumulator of
// their gradients.
//
// Tiles of rows and of columns, and runs of numbers for the update, are views of the same host memory, and
// come to the slots of a LayerCache each by itself. Between passes and updates the caches turn
// (LayerCache::turn): nothing is on the device then that the host has otherwise.
//
// Each tile of the accumulator has a ledger of its own. A pass that was cut off half-way through a matrix can
// be run again, and adds to those tiles alone that have not had it.
//
// Thread-safety: that of a LayerCache. Ownership: owns the host's memory; borrows the caches. Errors:
// LibTorch's exceptions.
#pragma once
#include <c10/util/FunctionRef.h>

#include "trainer/plan/parameters/tiles.h"
#include "trainer/residency/streamed_layers.h"

namespace spillway::trainer {

// Of all matrices of a training.
struct TileCaches {
  StreamedLayers values, gradients;
  uint32_t next_key = 0;
  uint32_t micro_batch = 0;  // that backward passes are of

  void turn() const { values.for_each(&LayerCache::turn), gradients.for_each(&LayerCache::turn); }
  void let_go() const { values.for_each(&LayerCache::let_go), gradients.for_each(&LayerCache::let_go); }
  void reserve() const { values.for_each(&LayerCache::reserve), gradients.for_each(&LayerCache::reserve); }
};

class TiledMatrix {
 public:
  enum class Cut : uint8_t { kRows, kColumns, kUpdate };

  // `value` and `gradient`: of the host, [rows, columns]. `is_zero`: the gradient, whatever its bytes are.
  // `accumulated`: micro-batches that it has.
  TiledMatrix(TileCaches* caches, const MatrixCut& cut, at::Tensor value, at::Tensor gradient, bool is_zero,
              uint32_t accumulated, at::Device device);
  ~TiledMatrix();
  TiledMatrix(const TiledMatrix&) = delete;

  const MatrixCut& cut() const { return cut_; }
  // On the host, and up to date; the caches turn. They may be written before the next use.
  const at::Tensor& value() const;
  const at::Tensor& gradient() const;
  // Tiles keep what they have accumulated.
  void move_to(at::Device device);

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
  // To zero, of no micro-batch.
  void clear();

  // Numbers [begin, begin + length), within an update's run, on the device until the next `open` or `close`.
  struct Run {
    at::Tensor value, gradient;  // flat; the value where it is asked for
  };
  enum class Access : uint8_t { kGradient, kBoth, kUpdate };  // of an update the gradient's bytes are lost
  Run open(int64_t begin, int64_t length, Access access);
  void close();
  void forget_open() { open_.reset(); }  // of a walk that was cut off

 private:
  struct Open {
    int64_t run = 0;
    Access access{};
  };
  int64_t tiles(Cut cut) const;
  uint32_t key(Cut cut, int64_t tile) const;
  at::Tensor view(const at::Tensor& of, Cut cut, int64_t tile) const;
  void enter(TileCaches* caches, at::Device device, bool is_zero);

  TileCaches* const caches_;
  const MatrixCut cut_;
  const at::Tensor value_, gradient_;
  const uint32_t first_key_;
  std::vector<uint32_t> accumulated_;  // of each tile of rows
  std::optional<Open> open_;
};

}  // namespace spillway::trainer
