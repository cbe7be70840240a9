#include "tools/spillway/plan/picture.h"

#include <algorithm>
#include <cmath>
#include <cstdio>

#include "tools/spillway/look.h"
#include "tools/spillway/units.h"
#include "tools/spillway/xml.h"

namespace spillway::tools {
namespace {

constexpr double kLabelWidth = 190, kBarWidth = 560, kNoteWidth = 330, kBarHeight = 26, kRowHeight = 38,
                 kTop = 44, kLegendHeight = 22;
// Okabe and Ito's colours, which people who see few colours tell apart, and greys.
constexpr const char* kColours[] = {"#0072b2", "#56b4e9", "#009e73", "#e69f00", "#d55e00",
                                    "#cc79a7", "#f0e442", "#999999", "#666666", "#bbbbbb"};

std::string repeated(const char* text, size_t times) {
  std::string all;
  for (size_t i = 0; i < times; ++i) all += text;
  return all;
}

class SvgWriter {
 public:
  explicit SvgWriter(const std::vector<SvgBar>& bars) : bars_(bars) {
    for (const SvgBar& bar : bars) {
      uint64_t sum = 0;
      for (const BarPiece& piece : bar.pieces) {
        sum += piece.bytes;
        if (std::ranges::find(names_, piece.name) == names_.end()) names_.push_back(piece.name);
      }
      most_ = std::max({most_, sum, bar.room});
    }
  }

  std::string write(const std::string& title) {
    const double height =
        kTop + kRowHeight * double(bars_.size()) + kLegendHeight * (double(names_.size()) + 1);
    const double width = kLabelWidth + kBarWidth + kNoteWidth;
    print(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 %.0f %.0f\" font-family=\"sans-serif\" "
        "font-size=\"13\">\n<rect width=\"100%%\" height=\"100%%\" fill=\"white\"/>\n",
        width, height);
    text(12, 24, title.substr(0, title.find('\n')), " font-weight=\"bold\"");
    if (title.find('\n') != std::string::npos) text(12, 44, title.substr(title.find('\n') + 1));
    for (size_t i = 0; i < bars_.size(); ++i) bar(bars_[i], kTop + kRowHeight * double(i));
    const double below = kTop + kRowHeight * double(bars_.size()) + 8;
    for (size_t i = 0; i < names_.size(); ++i) {
      const double y = below + kLegendHeight * double(i);
      rectangle(kLabelWidth, y, 14, 14, i);
      text(kLabelWidth + 22, y + 12, names_[i]);
    }
    return out_ + "</svg>\n";
  }

 private:
  void bar(const SvgBar& bar, double y) {
    text(12, y + 18, bar.label);
    double x = kLabelWidth;
    for (const BarPiece& piece : bar.pieces) {
      const double width = scaled(piece.bytes);
      const auto name = std::ranges::find(names_, piece.name) - names_.begin();
      rectangle(x, y, width, kBarHeight, size_t(name), piece.name + ": " + size_text(piece.bytes));
      x += width;
    }
    if (bar.room > 0) {
      const double at = kLabelWidth + scaled(bar.room);
      print("<line x1=\"%.1f\" y1=\"%.1f\" x2=\"%.1f\" y2=\"%.1f\" stroke=\"black\" stroke-width=\"2\"/>\n",
            at, y - 4, at, y + kBarHeight + 4);
    }
    text(kLabelWidth + kBarWidth + 12, y + 18, bar.note);
  }

  double scaled(uint64_t bytes) const { return most_ == 0 ? 0 : kBarWidth * double(bytes) / double(most_); }

  void rectangle(double x, double y, double width, double height, size_t colour,
                 const std::string& title = "") {
    print("<rect x=\"%.1f\" y=\"%.1f\" width=\"%.1f\" height=\"%.1f\" fill=\"%s\">", x, y, width, height,
          kColours[colour % std::size(kColours)]);
    if (!title.empty()) out_ += "<title>" + xml(title) + "</title>";
    out_ += "</rect>\n";
  }

  void text(double x, double y, const std::string& words, const char* style = "") {
    print("<text x=\"%.1f\" y=\"%.1f\"%s>", x, y, style);
    out_ += xml(words) + "</text>\n";
  }

  template <typename... Values>
  void print(const char* pattern, Values... values) {
    char line[320];
    std::snprintf(line, sizeof line, pattern, values...);
    out_ += line;
  }

  const std::vector<SvgBar>& bars_;
  std::vector<std::string> names_;
  uint64_t most_ = 0;
  std::string out_;
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
  return SvgWriter(bars).write(title);
}

}  // namespace spillway::tools
