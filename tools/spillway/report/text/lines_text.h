// What stands in the program at the places that a report names: found once, for text, data and page.
//
// Thread-safety: pure functions of the files at hand. Ownership: texts are their own.
#pragma once
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "tools/spillway/history/names.h"
#include "tools/spillway/history/source_lines.h"
#include "tools/spillway/report/render.h"
#include "tools/spillway/snapshot/report.h"

namespace spillway::tools {

struct NamedLine {
  std::string place, line;
};

// Of who asked, and of the holders that the text shows; each once, those that are at hand.
std::vector<NamedLine> named_lines(const ReportInput& input);
std::vector<NamedLine> named_lines(const SnapshotReport& report);

// A table with its heading; "" where there are none.
std::string lines_text(const std::vector<NamedLine>& lines);
nlohmann::ordered_json lines_json(const std::vector<NamedLine>& lines);

}  // namespace spillway::tools
