#include "tools/spillway/plan/picture.h"

#include <algorithm>
#include <cmath>

#include "base/svg.h"
#include "tools/spillway/look.h"
#include "tools/spillway/units.h"

namespace spillway::tools {
namespace {

constexpr double kLabelWidth = 225, kBarWidth = 560, kNoteWidth = 480, kBarHeight = 26, kRowHeight = 38,
                 kTop = 62, kLegendHeight = 22;

std::string repeated(const char* text, size_t times) {
  std::string all;
  for (size_t i = 0; i < times; ++i) all += text;
  return all;
}

class BarsWriter {
 public:
  explicit BarsWriter(const std::vector<SvgBar>& bars) : bars_(bars) {
    for (const SvgBar& bar : bars) {
      uint64_t sum = 0;
      for (const BarPiece& piece : bar.pieces) {
        sum += piece.bytes;
        if (std::ranges::find(names_, piece.name) == names_.end()) names_.push_back(piece.name);
      }
      most_ = std::max({most_, sum, bar.room});
    }
  }

  std::string write(const std::string& title) const {
    const double height =
        kTop + kRowHeight * double(bars_.size()) + kLegendHeight * (double(names_.size()) + 1);
    SvgPicture picture(kLabelWidth + kBarWidth + kNoteWidth, height);
    picture.text(12, 24, title.substr(0, title.find('\n')), {.bold = true});
    if (title.find('\n') != std::string::npos) picture.text(12, 44, title.substr(title.find('\n') + 1));
    for (size_t i = 0; i < bars_.size(); ++i) bar(bars_[i], kTop + kRowHeight * double(i), &picture);
    const double below = kTop + kRowHeight * double(bars_.size()) + 8;
    for (size_t i = 0; i < names_.size(); ++i) {
      const double y = below + kLegendHeight * double(i);
      picture.rectangle(kLabelWidth, y, 14, 14, i);
      picture.text(kLabelWidth + 22, y + 12, names_[i]);
    }
    return picture.finish();
  }

 private:
  void bar(const SvgBar& bar, double y, SvgPicture* picture) const {
    picture->text(12, y + 18, bar.label);
    double x = kLabelWidth;
    for (const BarPiece& piece : bar.pieces) {
      const double width = scaled(piece.bytes);
      const auto name = std::ranges::find(names_, piece.name) - names_.begin();
      picture->rectangle(x, y, width, kBarHeight, size_t(name), piece.name + ": " + size_text(piece.bytes));
      x += width;
    }
    if (bar.room > 0) {
      const double at = kLabelWidth + scaled(bar.room);
      picture->line({{at, y - 4}, {at, y + kBarHeight + 4}}, SvgPicture::Pen::kInk, 2);
    }
    picture->text(kLabelWidth + kBarWidth + 12, y + 18, bar.note);
  }

  double scaled(uint64_t bytes) const { return most_ == 0 ? 0 : kBarWidth * double(bytes) / double(most_); }

  const std::vector<SvgBar>& bars_;
  std::vector<std::string> names_;
  uint64_t most_ = 0;
};

}  // namespace

std::string bar_text(uint64_t bytes, uint64_t whole, size_t cells) {
  static constexpr const char* kEighths[] = {"", "▏", "▎", "▍", "▌", "▋", "▊", "▉"};
  if (bytes == 0 || whole == 0) return "";
  const double exact = double(bytes) / double(whole) * double(cells) * 8;
  const auto eighths = size_t(std::clamp(std::lround(exact), 1L, long(cells * 8)));
  return repeated(mark_text(Mark::kInUse), eighths / 8) + kEighths[eighths % 8];
}

std::string fill_text(uint64_t bytes, uint64_t room, size_t cells) {
  const double share = room == 0 ? 2 : double(bytes) / double(room);
  const auto used = size_t(std::clamp(std::ceil(share * double(cells)), 1.0, 2.0 * double(cells)));
  // What just does not fit shows it.
  const size_t all = share > 1 ? std::max(used, cells + 1) : used;
  const size_t inside = std::min(all, cells);
  return repeated(mark_text(Mark::kInUse), inside) + repeated(mark_text(Mark::kFree), cells - inside) + "|" +
         repeated(mark_text(Mark::kInUse), all - inside);
}

std::string bars_svg(const std::string& title, const std::vector<SvgBar>& bars) {
  return BarsWriter(bars).write(title);
}

}  // namespace spillway::tools
