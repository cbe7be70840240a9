#include "tools/spillway/rehearse/series.h"

#include <algorithm>
#include <cstdio>
#include <nlohmann/json.hpp>

#include "simulator/cards/cards.h"
#include "spillway/allocator/verdict.h"
#include "tools/spillway/rehearse/failure_text.h"
#include "tools/spillway/rehearse/find.h"
#include "tools/spillway/rehearse/options.h"
#include "tools/spillway/rehearse/output.h"
#include "tools/spillway/rehearse/report_json.h"
#include "tools/spillway/rehearse/report_text.h"
#include "tools/spillway/report/table.h"

namespace spillway::tools {
namespace {

using Json = nlohmann::ordered_json;

RunSummary summary_of(const RunOptions& options, const Rehearsal& rehearsal) {
  return {decide(rehearsal), largest_need(rehearsal), rehearsal.exit_code, fits_if(options, rehearsal),
          failure_line(rehearsal)};
}

Words cells_of(const std::string& name, const RunSummary& run) {
  const Need& need = run.need;
  const bool known = need.peak > 0 && run.fit != Fit::kNoKernels;
  const bool fits = run.fit == Fit::kFits && need.capacity >= need.peak;
  return {name,
          std::string(fit_text(run.fit)) + (run.condition.empty() ? "" : ", if"),
          known ? size_text(need.allocated) : "-",
          known ? size_text(need.reserved) : "-",
          known ? size_text(need.outside) : "-",
          known ? size_text(need.peak) : "-",
          fits ? size_text(need.capacity - need.peak) : "-"};
}

// What a row has no room for.
std::string note_of(const std::string& name, const RunSummary& run) {
  if (!run.why.empty()) return name + ": " + fit_text(run.fit) + ": " + run.why + "\n";
  return run.condition.empty()
             ? ""
             : name + ": fits, " + run.condition +
                   " (a run of it alone names the lines; --values compute has true values)\n";
}

Table new_table(const std::string& first) {
  using enum Align;
  Table table({kRight, kLeft, kRight, kRight, kRight, kRight, kRight});
  table.add({first, "", "allocated", "reserved", "outside PyTorch", "whole card", "margin"});
  return table;
}

Json json_of(const RunSummary& run) {
  return {{"verdict", fit_name(run.fit)},
          {"condition", run.condition},
          {"why", run.why},
          {"program_exit_code", run.exit_code},
          {"peak_allocated_bytes", run.need.allocated},
          {"peak_reserved_bytes", run.need.reserved},
          {"outside_bytes", run.need.outside},
          {"peak_bytes", run.need.peak},
          {"capacity_bytes", run.need.capacity}};
}

// The last lines of what a program said that failed.
void show_end(const std::string& log) {
  constexpr int kLines = 15;
  size_t from = log.size();
  for (int lines = 0; from > 0 && lines <= kLines; --from) lines += log[from - 1] == '\n';
  std::fputs(log.c_str() + (from == 0 ? 0 : from + 1), stderr);
}

int save(const std::string& path, const Json& json) {
  if (path.empty()) return kSuccess;
  const std::string error =
      write_output(path, json.dump(2, ' ', false, Json::error_handler_t::replace) + "\n");
  return error.empty() ? kSuccess : fail(kUnwritable, "rehearse: --json: " + error);
}

Json json_of(const Search& search, const Found& found) {
  Json tried = Json::array();
  for (const Tried& one : found.tried) {
    Json row = {{"value", one.value}};
    row.update(json_of(one.run));
    tried.push_back(row);
  }
  return {{"spillway_rehearse_find", 1},
          {"name", search.name},
          {"low", search.low},
          {"high", search.high},
          {"largest", found.largest ? Json(*found.largest) : Json(nullptr)},
          {"contradiction", contradiction(found.tried)},
          {"tried", tried}};
}

RunSummary run_with(int64_t value, const std::vector<Tried>& tried) {
  return std::find_if(tried.begin(), tried.end(), [value](const Tried& one) { return one.value == value; })
      ->run;
}

std::string search_text(const Search& search, const Found& found) {
  std::vector<Tried> sorted = found.tried;
  std::sort(sorted.begin(), sorted.end(), [](const Tried& a, const Tried& b) { return a.value < b.value; });
  Table table = new_table(search.name);
  for (const Tried& one : sorted) table.add(cells_of(std::to_string(one.value), one.run));
  std::string text = table.text("") + "\n";
  if (found.largest) {
    text += "the largest " + search.name + " that fits is " + std::to_string(*found.largest);
    text += *found.largest == search.high ? ", the end of the range\n" : "\n";
    text +=
        note_of(search.name + " " + std::to_string(*found.largest), run_with(*found.largest, found.tried));
  } else if (found.stopped) {
    const Tried& last = found.tried.back();
    text += "no answer: with " + search.name + " " + std::to_string(last.value) + ", " +
            (last.run.why.empty() ? fit_text(last.run.fit) : last.run.why) + "\n";
  } else {
    text += "not even " + search.name + " " + std::to_string(search.low) + " fits\n";
  }
  if (const std::string odd = contradiction(found.tried); !odd.empty())
    text += "but more is not always more: " + odd + ", so values that were not tried may fit too\n";
  else if (found.tried.size() > 2)
    text += "values that were not run are taken to lie between their neighbours\n";
  return text;
}

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
  for (const Variant& variant : variants) outputs.emplace_back("--trace", variant.options.trace);
  return check_outputs(outputs);
}

int run_variants(const Kind& kind, std::vector<Variant> variants, const std::string& json) {
  name_traces(&variants);
  Table table = new_table(kind.one);
  Json rows = Json::array();
  std::vector<std::pair<Fit, int>> ends;
  std::string notes;
  if (const std::string no_place = check_traces(variants); !no_place.empty())
    return fail(kUnwritable, "rehearse: " + no_place);
  for (Variant& variant : variants) {
    variant.options.keep_output = true;
    RunError error;
    const auto rehearsal = rehearse_once(variant.options, &error);
    if (!rehearsal) return fail(error.code, "rehearse: " + error.text);
    const RunSummary run = summary_of(variant.options, *rehearsal);
    if (run.fit == Fit::kProgramFailed) show_end(rehearsal->log);
    table.add(cells_of(variant.name, run));
    notes += note_of(variant.name, run);
    Json row = {{kind.one, variant.name}};
    row.update(json_of(run));
    rows.push_back(row);
    ends.emplace_back(run.fit, exit_code_of(*rehearsal));
  }
  std::fputs((table.text("") + (notes.empty() ? "" : "\n") + notes).c_str(), stdout);
  const int saved = save(json, {{kind.mark, 1}, {kind.many, rows}});
  return saved != kSuccess ? saved : exit_code_of_comparison(ends);
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

int run_search(const RunOptions& options, const std::string& text, const std::string& json) {
  std::string error;
  const auto search = parse_search(text, &error);
  if (!search) return fail(kUsageError, "rehearse: " + error);
  if (!substitute(options.command, search->name, search->low))
    return fail(kUsageError, "rehearse: --find: the command has no {" + search->name + "} to put a value in");
  RunError not_started;
  std::string log;
  const auto run = [&](int64_t value) -> std::optional<Tried> {
    RunOptions one = options;
    one.command = *substitute(options.command, search->name, value);
    one.keep_output = true;
    const auto rehearsal = rehearse_once(one, &not_started);
    if (!rehearsal) return std::nullopt;
    log = rehearsal->log;
    return Tried{value, summary_of(one, *rehearsal)};
  };
  const Found found = find_largest(*search, run);
  if (!not_started.text.empty()) return fail(not_started.code, "rehearse: " + not_started.text);
  if (found.stopped) show_end(log);
  std::fputs(search_text(*search, found).c_str(), stdout);
  if (const int code = save(json, json_of(*search, found)); code != kSuccess) return code;
  if (found.stopped) return exit_code_of(found.tried.back().run.fit, found.tried.back().run.exit_code);
  return found.largest ? kSuccess : kDoesNotFit;
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
