// Columns of text, each as wide as its widest cell.
#pragma once
#include <algorithm>
#include <string>
#include <vector>

namespace spillway::tools {

enum class Align { kLeft, kRight };

class Table {
 public:
  explicit Table(std::vector<Align> columns) : columns_(std::move(columns)), widths_(columns_.size(), 0) {}

  // REQUIRES: as many cells as columns.
  void add(std::vector<std::string> cells) {
    for (size_t i = 0; i < columns_.size(); ++i) {
      std::ranges::replace(cells[i], '\n', ' ');  // a name in a file may have one
      widths_[i] = std::max(widths_[i], width(cells[i]));
    }
    rows_.push_back(std::move(cells));
  }

  std::string text(const std::string& indent) const {
    std::string out;
    for (const auto& row : rows_) {
      std::string line = indent;
      for (size_t i = 0; i < columns_.size(); ++i) {
        const std::string padding(widths_[i] - width(row[i]), ' ');
        if (i > 0) line += "  ";
        line += columns_[i] == Align::kLeft ? row[i] + padding : padding + row[i];
      }
      line.erase(line.find_last_not_of(' ') + 1);
      out += line + "\n";
    }
    return out;
  }

 private:
  // Characters, not bytes: the sign for micro takes two.
  static size_t width(const std::string& text) {
    return static_cast<size_t>(std::count_if(
        text.begin(), text.end(), [](char c) { return (static_cast<unsigned char>(c) & 0xC0) != 0x80; }));
  }

  std::vector<Align> columns_;
  std::vector<size_t> widths_;
  std::vector<std::vector<std::string>> rows_;
};

}  // namespace spillway::tools
