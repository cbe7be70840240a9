// The bytes of a matrix of which a device has a tile at a time: they have one home, and each tile sees its
// own of them.
//
// On a disk a matrix is one record. It is in one of the host's buffers while its tiles are copied, and the
// last tile that is written has it go to the disk. A tile is written beside the others, so that the record is
// read before, unless the matrix is zero.
//
// Thread-safety: one thread at a time. Ownership: shares the home. Errors: those of the home.
#pragma once
#include <string>

#include "trainer/plan/parameters/tiles.h"
#include "trainer/residency/homes/layer_home.h"
#include "trainer/residency/layer_block.h"

namespace spillway::trainer {

class MatrixBytes : public std::enable_shared_from_this<MatrixBytes> {
 public:
  enum class Cut : uint8_t { kRows, kColumns, kUpdate };
  struct Tile {
    Cut cut{};
    int64_t first = 0, count = 0;  // lines; of an update numbers
  };

  // Zero, whatever the home has. `name`: for people, as in "h.3.mlp.c_fc.weight".
  MatrixBytes(std::string name, const MatrixCut& sizes, at::ScalarType type, std::shared_ptr<LayerHome> home)
      : name_(std::move(name)),
        rows_(sizes.rows),
        columns_(sizes.columns),
        type_(type),
        home_(std::move(home)) {}

  static int64_t bytes_of(const MatrixCut& sizes, at::ScalarType type) {
    return sizes.rows * sizes.columns * int64_t(c10::elementSize(type));
  }
  int64_t bytes() const { return rows_ * columns_ * int64_t(c10::elementSize(type_)); }
  const std::string& name() const { return name_; }
  const std::shared_ptr<LayerHome>& home() const { return home_; }
  // No tile was written, or all are worthless.
  bool is_zero() const { return is_zero_; }

  // The tile as a device has it, for a LayerCache. Shares this.
  LayerBlock block(const Tile& tile, at::Device device);

  // All, as [rows, columns], on the host. REQUIRES: no copy is under way.
  at::Tensor read() const { return whole(home_->read(nullptr)); }
  void was_written() { home_->written_by(nullptr); }  // what `read` gave
  void write(const at::Tensor& numbers);
  void set_zero(const Tile& tile);
  void discard();
  // The same bytes to another home, which has room for them or throws; and that home in place of this one.
  void copy_to(LayerHome& home) const {
    if (!is_zero_) copy_home(*home_, home);
  }
  void take_home(std::shared_ptr<LayerHome> home) { home_ = std::move(home); }

 private:
  class TileHome;
  at::Tensor whole(const at::Tensor& given) const;
  at::Tensor numbers_in(const at::Tensor& whole, const Tile& tile) const;
  bool is_last(const Tile& tile) const;
  at::Tensor change(CopyStream* by) { return whole(is_zero_ ? home_->overwrite(by) : home_->change(by)); }
  void written_by(const CopyStream::Mark& mark, const Tile& tile);

  const std::string name_;
  const int64_t rows_, columns_;
  const at::ScalarType type_;
  std::shared_ptr<LayerHome> home_;
  bool is_zero_ = true;
};

}  // namespace spillway::trainer
