#include "tools/spillway/rehearse/run/search.h"

#include <algorithm>
#include <cstdio>
#include <optional>

#include "allocator/request/verdict.h"
#include "tools/spillway/rehearse/judge/failure_text.h"
#include "tools/spillway/rehearse/judge/find.h"
#include "tools/spillway/rehearse/report/report_text.h"
#include "tools/spillway/rehearse/report/rows.h"

namespace spillway::tools {
namespace {

RowJson search_json(const Search& search, const Found& found, uint64_t kept) {
  RowJson tried = RowJson::array();
  for (const Tried& one : found.tried) {
    RowJson row = {{"value", one.value}};
    row.update(row_json(one.run));
    tried.push_back(row);
  }
  return {{"spillway_rehearse_find", 1},
          {"name", search.name},
          {"low", search.low},
          {"high", search.high},
          {"step", search.step},
          {"kept_free_bytes", kept},
          {"largest", found.largest ? RowJson(*found.largest) : RowJson(nullptr)},
          {"contradiction", contradiction(found.tried)},
          {"tried", tried}};
}

RunSummary run_with(int64_t value, const std::vector<Tried>& tried) {
  return std::find_if(tried.begin(), tried.end(), [value](const Tried& one) { return one.value == value; })
      ->run;
}

// What the answer leaves free, and why.
std::string margin_text(uint64_t kept) {
  return kept == 0 ? ""
                   : ", on a card of " + size_text(kept) +
                         " less: as much of what it took is modelled and not measured";
}

std::string answer_text(const Search& search, const Found& found, uint64_t kept) {
  if (found.stopped) {
    const Tried& last = found.tried.back();
    return "no answer: with " + search.name + " " + std::to_string(last.value) + ", " +
           (last.run.why.empty() ? fit_text(last.run.fit) : last.run.why) + "\n";
  }
  if (!found.largest)
    return "not even " + search.name + " " + std::to_string(search.low) + " fits" + margin_text(kept) + "\n";
  const std::string value = std::to_string(*found.largest);
  return "the largest " + search.name + " that fits is " + value +
         (*found.largest == search.high ? ", the end of the range" : "") + margin_text(kept) + "\n" +
         row_note(search.name + " " + value, run_with(*found.largest, found.tried));
}

std::string search_text(const Search& search, const Found& found, uint64_t kept) {
  std::vector<Tried> sorted = found.tried;
  std::stable_sort(sorted.begin(), sorted.end(),
                   [](const Tried& a, const Tried& b) { return a.value < b.value; });
  Table table = row_table(search.name);
  for (const Tried& one : sorted) table.add(row_cells(std::to_string(one.value), one.run));
  std::string text = table.text("") + "\n" + answer_text(search, found, kept);
  if (const std::string odd = contradiction(found.tried); !odd.empty())
    text += "but more is not always more: " + odd + ", so values that were not tried may fit too\n";
  else if (found.tried.size() > 2)
    text += "values that were not run are taken to lie between their neighbours\n";
  return text;
}

// Runs the program with values. What is only modelled may be twice as much on a real card, so every run has a
// card of so much less as a run before has shown to be modelled. Their capacity is what was left.
class Runs {
 public:
  Runs(const RunOptions& options, const Search& search) : options_(options), search_(search) {}

  std::optional<Tried> run(int64_t value) {
    while (true) {
      auto tried = run_once(value);
      if (!tried || tried->run.fit != Fit::kFits || tried->run.need.modelled <= kept_) return tried;
      Need& need = tried->run.need;
      full_ = need.capacity + kept_;
      kept_ = need.modelled;
      need.capacity = full_ - kept_;
      options_.machine.capacity = std::to_string(need.capacity);
      if (need.peak <= need.capacity) return tried;
    }
  }

  uint64_t kept() const { return kept_; }
  uint64_t full() const { return full_; }  // the card's capacity, where something is kept
  const RunError& error() const { return error_; }
  const std::string& log() const { return log_; }

 private:
  std::optional<Tried> run_once(int64_t value) {
    const auto command = substitute(options_.command, search_.name, value);
    if (!command) return std::nullopt;
    RunOptions one = options_;
    one.command = *command;
    one.keep_output = true;
    const auto rehearsal = rehearse_once(one, &error_);
    if (!rehearsal) return std::nullopt;
    log_ = rehearsal->log;
    Tried tried{value, summary_of(one, *rehearsal)};
    tell(tried);
    return tried;
  }

  void tell(const Tried& tried) const {
    std::fprintf(stderr, "%s %lld: %s, %s\n", search_.name.c_str(), static_cast<long long>(tried.value),
                 fit_text(tried.run.fit), size_text(tried.run.need.peak).c_str());
  }

  RunOptions options_;
  const Search& search_;
  uint64_t kept_ = 0, full_ = 0;
  RunError error_;
  std::string log_;
};

}  // namespace

int run_search(const RunOptions& options, const std::string& text, const std::string& json) {
  std::string error;
  const auto search = parse_search(text, &error);
  if (!search) return fail(kUsageError, "rehearse: " + error);
  if (!substitute(options.command, search->name, search->low))
    return fail(kUsageError, "rehearse: --find: the command has no {" + search->name + "} to put a value in");
  Runs runs(options, *search);
  Found found = find_largest(*search, [&](int64_t value) { return runs.run(value); });
  if (runs.kept() > 0)
    for (Tried& tried : found.tried) tried.run.need.capacity = runs.full();
  if (!runs.error().text.empty()) return fail(runs.error().code, "rehearse: " + runs.error().text);
  if (found.stopped) show_end(runs.log());
  std::fputs(search_text(*search, found, runs.kept()).c_str(), stdout);
  if (const int code = save_rows(json, search_json(*search, found, runs.kept())); code != kSuccess)
    return code;
  if (found.stopped) return exit_code_of(found.tried.back().run.fit, found.tried.back().run.exit_code);
  return found.largest ? kSuccess : kDoesNotFit;
}

}  // namespace spillway::tools
