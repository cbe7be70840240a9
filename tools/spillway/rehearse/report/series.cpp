#include "tools/spillway/rehearse/report/series.h"

#include <cstdio>

#include "simulator/cards/cards.h"
#include "tools/spillway/rehearse/options.h"
#include "tools/spillway/rehearse/report/output.h"
#include "tools/spillway/rehearse/report/report_text.h"
#include "tools/spillway/rehearse/report/rows.h"

namespace spillway::tools {
namespace {

// One row of a comparison: the program under options of its own.
struct Variant {
  std::string name;
  RunOptions options;
};

// What the rows are: "card", the list of them in JSON, and the JSON's own mark.
struct Kind {
  const char *one, *many, *mark;
};

// A file for each row.
void name_traces(std::vector<Variant>* variants) {
  for (Variant& variant : *variants)
    if (std::string& trace = variant.options.trace; !trace.empty()) trace += "." + variant.name;
}

std::string check_traces(const std::vector<Variant>& variants) {
  std::vector<std::pair<const char*, std::string>> outputs;
  outputs.reserve(variants.size());
  for (const Variant& variant : variants) outputs.emplace_back("--trace", variant.options.trace);
  return check_outputs(outputs);
}

int run_variants(const Kind& kind, std::vector<Variant> variants, const std::string& json) {
  name_traces(&variants);
  Table table = row_table(kind.one);
  RowJson rows = RowJson::array();
  std::vector<std::pair<Fit, int>> ends;
  std::string notes, unwritten;
  RunError error;
  if (const std::string no_place = check_traces(variants); !no_place.empty())
    return fail(kUnwritable, "rehearse: " + no_place);
  for (Variant& variant : variants) {
    variant.options.keep_output = true;
    const auto rehearsal = rehearse_once(variant.options, &error);
    if (!rehearsal) break;
    if (unwritten.empty()) unwritten = rehearsal->unwritten;
    const RunSummary run = summary_of(variant.options, *rehearsal);
    if (run.fit == Fit::kProgramFailed) show_end(rehearsal->log);
    table.add(row_cells(variant.name, run));
    notes += row_note(variant.name, run);
    RowJson row = {{kind.one, variant.name}};
    row.update(row_json(run));
    rows.push_back(row);
    ends.emplace_back(run.fit, exit_code_of(*rehearsal));
  }
  // Of a series that was stopped, the rows that are finished.
  if (!rows.empty()) {
    std::fputs((table.text("") + (notes.empty() ? "" : "\n") + notes).c_str(), stdout);
    const int saved = save_rows(json, {{kind.mark, 1}, {kind.many, rows}});
    if (saved != kSuccess) return saved;
  }
  if (!error.text.empty()) return fail(error.code, "rehearse: " + error.text);
  if (!unwritten.empty()) return fail(kUnwritable, "rehearse: " + unwritten);
  return exit_code_of_comparison(ends);
}

}  // namespace

int exit_code_of_comparison(const std::vector<std::pair<Fit, int>>& ends) {
  int code = kSuccess;
  for (const auto& [fit, exit_code] : ends) {
    if (fit == Fit::kProgramFailed) return exit_code;  // it says least about memory, so it is the one to see
    if (code == kSuccess) code = exit_code;
  }
  return code;
}

int run_comparison(const RunOptions& options, const std::string& text, const std::string& json) {
  const Words names = split_list(text);
  if (names.empty())
    return fail(kUsageError, "rehearse: --compare: name the cards, such as t4-16gb,a100-40gb");
  std::vector<Variant> variants;
  for (const std::string& name : names) {
    const cards::Card* card = cards::find_card(name);
    if (card == nullptr) return fail(kUsageError, "rehearse: --compare: " + cards::unknown_card(name));
    Variant variant{std::string(card->id), options};
    variant.options.machine.card = card->id;
    variant.options.machine.capacity.reset();
    variants.push_back(std::move(variant));
  }
  return run_variants({"card", "cards", "spillway_rehearse_compare"}, std::move(variants), json);
}

int run_allocators(const RunOptions& options, const std::vector<std::string>& names,
                   const std::string& json) {
  std::vector<Variant> variants;
  for (const std::string& name : names) {
    Variant variant{name, options};
    variant.options.allocator = name;
    variants.push_back(std::move(variant));
  }
  return run_variants({"allocator", "allocators", "spillway_rehearse_allocators"}, std::move(variants), json);
}

}  // namespace spillway::tools
