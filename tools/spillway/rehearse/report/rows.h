// Rehearsals as the rows of one table, for people and as JSON.
//
// Thread-safety: none. Errors: text, or an exit code with text on standard error. Units: bytes.
#pragma once
#include <nlohmann/json.hpp>
#include <string>

#include "tools/spillway/command.h"
#include "tools/spillway/rehearse/judge/outcome.h"
#include "tools/spillway/rehearse/run/run.h"
#include "tools/spillway/report/text/table.h"

namespace spillway::tools {

using RowJson = nlohmann::ordered_json;

struct RunSummary {
  Fit fit = Fit::kProgramFailed;
  Need need;
  int exit_code = 0;
  std::string condition;  // of "fits": "if ...", or ""
  std::string why;        // of anything else, in one line
};

RunSummary summary_of(const RunOptions& options, const Rehearsal& rehearsal);

// `first`: what the rows differ by.
Table row_table(const std::string& first);
Words row_cells(const std::string& name, const RunSummary& run);
// What a row has no room for; "" for nothing.
std::string row_note(const std::string& name, const RunSummary& run);
RowJson row_json(const RunSummary& run);

// The last lines of what a program said that failed, on standard error.
void show_end(const std::string& log);
// Writes the table where the user wants it: `path` "" for nowhere.
int save_rows(const std::string& path, const RowJson& json);

}  // namespace spillway::tools
