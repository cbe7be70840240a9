// The program's own lines that a report names, as their source files have them.
//
// A report may be read elsewhere, later, or be of a stranger's file: only Python's sources are looked at that
// are at hand and have not changed since, and nothing is said of others. Thread-safety: one thread. Units:
// lines count from 1. Bounds: 64 files of at most 4 MiB.
#pragma once
#include <chrono>
#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "tools/spillway/history/history.h"

namespace spillway::tools {

class SourceLines {
 public:
  // `report`: the file that is told of; sources that are newer are passed over.
  explicit SourceLines(const std::string& report);

  void know(const std::vector<StackFrame>& frames);
  // `place`: as reports call it, "model.py:47 forward". "" where the line is not at hand, or two files would
  // be meant.
  std::string of(const std::string& place);

 private:
  using Lines = std::vector<std::string>;
  struct Origin {
    std::string file;  // "": two files
    uint64_t line = 0;
  };

  const Lines& lines_of(const std::string& file);

  std::optional<std::filesystem::file_time_type> newest_;
  std::map<std::string, Origin> places_;
  std::map<std::string, Lines> files_;
};

}  // namespace spillway::tools
