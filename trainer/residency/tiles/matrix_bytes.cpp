#include "trainer/residency/tiles/matrix_bytes.h"

namespace spillway::trainer {

// Tiles wait for what was written of them, and not for each other.
class MatrixBytes::TileHome : public LayerHome {
 public:
  TileHome(std::shared_ptr<MatrixBytes> of, const Tile& tile) : of_(std::move(of)), tile_(tile) {}

  Place place() const override { return of_->home_->place(); }
  bool has_bytes() const override { return !of_->is_zero_; }
  bool is_ready() override { return of_->home_->is_ready(); }
  at::Tensor read(CopyStream* by) override {
    queue_behind(by, written_);
    return bytes_in(of_->whole(of_->home_->read(by)));
  }
  void read_until(const CopyStream::Mark& mark) override { of_->home_->read_until(mark); }
  at::Tensor overwrite(CopyStream* by) override { return bytes_in(of_->change(by)); }
  void written_by(CopyStream::Mark mark) override {
    of_->written_by(mark, tile_);
    written_ = std::move(mark);
  }
  at::Tensor change(CopyStream* by) override { return overwrite(by); }
  void partly_written_by(CopyStream::Mark mark) override { written_by(std::move(mark)); }
  std::optional<uint32_t> record() const override { return of_->home_->record(); }

 private:
  // Lines that stand together are bytes in a row.
  at::Tensor bytes_in(const at::Tensor& whole) const {
    const at::Tensor numbers = of_->numbers_in(whole, tile_);
    return (numbers.is_contiguous() ? numbers.view({-1}) : numbers).view(at::kByte);
  }

  const std::shared_ptr<MatrixBytes> of_;
  const Tile tile_;
  CopyStream::Mark written_;
};

LayerBlock MatrixBytes::block(const Tile& tile, at::Device device) {
  std::vector<int64_t> sizes{tile.count};
  if (tile.cut == Cut::kRows) sizes = {tile.count, columns_};
  if (tile.cut == Cut::kColumns) sizes = {rows_, tile.count};
  return LayerBlock::of({std::move(sizes), type_}, device,
                        std::make_shared<TileHome>(shared_from_this(), tile));
}

at::Tensor MatrixBytes::whole(const at::Tensor& given) const {
  return given.narrow(0, 0, bytes()).view(type_).view({rows_, columns_});
}

at::Tensor MatrixBytes::numbers_in(const at::Tensor& whole, const Tile& tile) const {
  if (tile.cut == Cut::kUpdate) return whole.view({-1}).narrow(0, tile.first, tile.count);
  return whole.narrow(tile.cut == Cut::kRows ? 0 : 1, tile.first, tile.count);
}

bool MatrixBytes::is_last(const Tile& tile) const {
  const int64_t all = tile.cut == Cut::kRows      ? rows_
                      : tile.cut == Cut::kColumns ? columns_
                                                  : rows_ * columns_;
  return tile.first + tile.count == all;
}

void MatrixBytes::written_by(const CopyStream::Mark& mark, const Tile& tile) {
  is_last(tile) ? home_->written_by(mark) : home_->partly_written_by(mark);
  is_zero_ = false;
}

void MatrixBytes::write(const at::Tensor& numbers) {
  whole(home_->overwrite(nullptr)).copy_(numbers);
  home_->written_by(nullptr);
  home_->settle();
  is_zero_ = false;
}

void MatrixBytes::set_zero(const Tile& tile) {
  numbers_in(change(nullptr), tile).zero_();
  written_by(nullptr, tile);
}

void MatrixBytes::discard() {
  is_zero_ = true;
  home_->discard();
}

}  // namespace spillway::trainer
