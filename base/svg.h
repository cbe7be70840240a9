// A picture as SVG: shapes and words on a ground that is light or dark as the reader's system is.
//
// It stands by itself: no fonts, scripts or files of others. Colours that carry meaning (of kinds of memory)
// are numbered, and the same in both themes; ink, muted ink, lines and warnings change with the theme.
//
// Thread-safety: one thread. Errors: none; words are escaped. Units: pixels, from the upper left.
#pragma once
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace spillway {

struct SvgPoint {
  double x = 0, y = 0;
};

class SvgPicture {
 public:
  // Of a line, by its meaning: of an axis or the grid, what was measured, the same of less weight, a limit,
  // a mark.
  enum class Pen : uint8_t { kGrid, kInk, kMuted, kLimit, kMark };
  enum class Anchor : uint8_t { kStart, kMiddle, kEnd };
  struct Words {
    Anchor anchor = Anchor::kStart;
    bool bold = false, muted = false;
  };
  static constexpr size_t kColours = 12;

  SvgPicture(double width, double height);

  // `colour`: any number, taken modulo kColours. `title`: what a reader sees who points at it.
  void rectangle(double x, double y, double width, double height, size_t colour,
                 const std::string& title = "");
  void area(const std::vector<SvgPoint>& outline, size_t colour, const std::string& title = "");
  void line(const std::vector<SvgPoint>& points, Pen pen, double width = 1, const std::string& title = "");
  void dot(double x, double y, double radius, size_t colour, const std::string& title = "");
  void text(double x, double y, const std::string& words) { text(x, y, words, {}); }
  void text(double x, double y, const std::string& words, Words style);
  std::string finish() const { return out_ + "</svg>\n"; }

 private:
  void end(const char* element, const std::string& title);

  std::string out_;
};

}  // namespace spillway
