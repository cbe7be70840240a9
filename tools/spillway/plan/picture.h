// How `estimate` and `plan` draw bytes: bars of text, and bars as SVG.
//
// Thread-safety: pure functions. Errors: none. Units: bytes.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

namespace spillway::tools {

// "██████▌": `cells` wide where `bytes` is `whole`, to an eighth of a cell; something where it is not 0.
std::string bar_text(uint64_t bytes, uint64_t whole, size_t cells);

// "██████····|" of what has room; "███████████|██" of what has not, as far beyond as it lacks, up to as much
// again.
std::string fill_text(uint64_t bytes, uint64_t room, size_t cells);

struct BarPiece {
  std::string name;
  uint64_t bytes = 0;
};

struct SvgBar {
  std::string label;  // on its left
  std::string note;   // on its right
  std::vector<BarPiece> pieces;
  uint64_t room = 0;  // a line is drawn there; 0: none
};

// One bar below another, on a common scale, with a legend of all pieces' names. `title` has one line or two.
std::string bars_svg(const std::string& title, const std::vector<SvgBar>& bars);

}  // namespace spillway::tools
