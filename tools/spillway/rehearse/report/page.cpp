#include "tools/spillway/rehearse/report/page.h"
#include "base/report_page.h"

#include <algorithm>
#include <cstdio>
#include <nlohmann/json.hpp>

#include "tools/spillway/page/page.h"
#include "tools/spillway/rehearse/judge/diagnosis.h"
#include "tools/spillway/rehearse/judge/failure_text.h"
#include "tools/spillway/rehearse/report/report_text.h"
#include "tools/spillway/run/pages.h"
#include "tools/spillway/units.h"

namespace spillway::tools {
namespace {

using Json = nlohmann::ordered_json;

const char* mood_of(Fit fit, bool conditional) {
  if (fit == Fit::kFits) return conditional ? "calm" : "good";
  return fit == Fit::kDoesNotFit || fit == Fit::kWentOn ? "bad" : "calm";
}

std::string upper_first(std::string text) {
  if (!text.empty() && text[0] >= 'a' && text[0] <= 'z') text[0] = static_cast<char>(text[0] - 'a' + 'A');
  return text;
}

std::string summary_of(const Rehearsal& rehearsal) {
  if (std::string line = failure_line(rehearsal); !line.empty()) return upper_first(line) + ".";
  const Need need = largest_need(rehearsal);
  std::string text = "At its peak it takes " + size_text(need.peak);
  if (need.capacity > 0) text += " of the card's " + size_text(need.capacity);
  if (need.capacity >= need.peak) text += ": " + size_text(need.capacity - need.peak) + " are left";
  return text + ".";
}

std::string why(const Rehearsal& rehearsal) {
  const auto diagnosis = diagnose(rehearsal);
  if (!diagnosis) return summary_of(rehearsal);
  const std::string advice = advice_of(*diagnosis);
  return upper_first(diagnosis->text) + "." + (advice.empty() ? "" : " " + upper_first(advice) + ".");
}

Json verdict_of(const RunOptions& options, const Rehearsal& rehearsal) {
  const std::string condition = fits_if(options, rehearsal);
  const auto diagnosis = diagnose(rehearsal);
  std::string head = fit_text(decide(rehearsal));
  std::ranges::transform(head, head.begin(), [](char c) { return c >= 'a' && c <= 'z' ? c - 'a' + 'A' : c; });
  return {{"head", head},
          {"mood", mood_of(decide(rehearsal), !condition.empty())},
          {"condition", upper_first(condition)},
          {"cause", diagnosis ? cause_name(diagnosis->cause) : ""},
          {"text", why(rehearsal)}};
}

Json fact(const char* name, const std::string& value, const std::string& more = "") {
  return {name, value, more};
}

Json facts_of(const RunOptions& options, const Rehearsal& rehearsal, const ShownDevice& shown) {
  Json facts = Json::array();
  facts.push_back(fact("on", machine_text(rehearsal), "a simulated card"));
  facts.push_back(
      fact("allocator", allocator_text(options, rehearsal), "values " + values_of(options, rehearsal)));
  if (shown.process != nullptr)
    facts.push_back(fact("steps",
                         shown.process->steps == 0 ? "none seen" : std::to_string(shown.process->steps),
                         shown.process->ended_by_steps ? "ended there by --steps" : "of the optimizer"));
  if (shown.process != nullptr && rehearsal.processes.size() > 1)
    facts.push_back(fact("shown", device_name(rehearsal, *shown.process, shown.device),
                         "of " + std::to_string(rehearsal.processes.size()) + " processes"));
  return facts;
}

// PyTorch's own figures at the peak of the fullest card.
Json equation_of(const Need& need) {
  static constexpr const char* kKeys[] = {"in_use", "idle", "outside", "free"};  // as style.css has them
  static constexpr const char* kMeanings[] = {"allocated by PyTorch",
                                              "held by PyTorch's allocator beyond that",
                                              "CUDA context, libraries", "of the card"};
  if (need.capacity < need.peak || need.capacity == 0) return {};
  Json parts = Json::array();
  for (const BarPart& part : card_parts(need)) {
    const auto mark = static_cast<size_t>(part.mark);
    parts.push_back(
        {{"key", kKeys[mark]}, {"name", part.name}, {"meaning", kMeanings[mark]}, {"bytes", part.bytes}});
  }
  return {{"name", "card"}, {"total", need.capacity}, {"parts", parts}};
}

Json cards_of(const Rehearsal& rehearsal) {
  Json cards = Json::array();
  for (const CardNeed& card : needs_of(rehearsal))
    cards.push_back({{"name", "GPU " + std::to_string(card.physical)},
                     {"processes", card.processes},
                     {"capacity_bytes", card.need.capacity},
                     {"peak_bytes", card.need.peak},
                     {"peak_allocated_bytes", card.need.allocated},
                     {"peak_reserved_bytes", card.need.reserved},
                     {"outside_bytes", card.need.outside}});
  return cards;
}

Json answer(const std::string& what, bool fits, const char* sure, const std::string& text) {
  return {{"what", what}, {"setting", ""}, {"fits", fits}, {"text", text}, {"sure", sure}};
}

void add_cards(const Rehearsal& ample, const Explanation& explanation, Json* answers) {
  if (explanation.only_delayed) return;
  const CardsByMemory cards = cards_by_memory(ample, explanation);
  const auto& fraction = explanation.fraction;
  if (const auto enough = fraction_enough(ample, explanation))
    answers->push_back(answer("the same card with " + fraction_call(*enough), true,
                              "by memory alone, not run", "enough for all that it took"));
  const std::string within = fraction ? "for " + fraction_call(fraction->fraction()) : "with enough memory";
  answers->push_back(answer("cards " + within, true, "by memory alone, not run", listed(cards.enough)));
  if (!cards.without_cache.empty())
    answers->push_back(answer("cards for what is in use, but not for all of the cache", true,
                              "by memory alone, not run", listed(cards.without_cache)));
}

Json answers_of(const Rehearsal& rehearsal, const Explanation& explanation) {
  Json answers = Json::array();
  if (decide(rehearsal) == Fit::kFits) add_cards(rehearsal, explanation, &answers);
  for (const Counterfactual& run : explanation.runs) {
    const Need need = largest_need(run.rehearsal);
    const Fit fit = decide(run.rehearsal);
    const bool ends = fit == Fit::kFits || (run.survives_failures && fit == Fit::kWentOn);
    answers.push_back(answer(is_ample(run) ? run.what : "the same card " + run.what, ends, "rehearsed",
                             ends ? "peak " + size_text(need.peak) : fit_text(fit)));
    if (is_ample(run) && fit == Fit::kFits) add_cards(run.rehearsal, explanation, &answers);
  }
  return answers;
}

}  // namespace

std::string rehearsal_page_text(const RunOptions& options, const Rehearsal& rehearsal,
                                const Explanation& explanation) {
  const ShownDevice shown = shown_of(rehearsal);
  const MemoryHistory history = history_of(options, rehearsal);
  const HistoryFindings* findings = rehearsal.findings.get();
  const Need need = largest_need(rehearsal);
  Counterfactuals fitted;
  if (findings && findings->failure) fitted = what_would_have_fitted(history, *findings);
  Json part = {{"verdict", verdict_of(options, rehearsal)},
               {"facts", facts_of(options, rehearsal, shown)},
               {"equation", findings && findings->failure ? Json() : equation_of(need)},
               {"cards", cards_of(rehearsal)},
               {"answers", answers_of(rehearsal, explanation)},
               {"not_run", explanation.remarks}};
  const std::string command = command_text(options.command);
  const HistoryFindings none;
  return rehearsal_page({command, history, findings ? *findings : none,
                         findings && findings->failure ? &fitted : nullptr, "rehearsal"},
                        part.dump(-1, ' ', false, Json::error_handler_t::replace));
}

void leave_page_of_failure(const RunOptions& options, const Rehearsal& rehearsal,
                           const Explanation& explanation) {
  const Fit fit = decide(rehearsal);
  const ShownDevice shown = shown_of(rehearsal);
  if ((fit != Fit::kDoesNotFit && fit != Fit::kWentOn) || shown.process == nullptr) return;
  std::string trace = options.trace.empty() ? trace_in_current_folder() : options.trace;
  if (const size_t at = trace.find("%p"); options.trace.empty() && at != std::string::npos)
    trace.replace(at, 2, std::to_string(shown.process->pid));
  if (trace.empty()) return;
  const std::string page = page_beside(trace);
  std::fflush(stdout);  // the report comes first
  const auto make = [&](std::string*) { return rehearsal_page_text(options, rehearsal, explanation); };
  if (leave_page(page, "the rehearsal", make) == PageEnd::kWritten)
    std::fprintf(stderr, "spillway: why it ran out, as a page for a browser: %s\n", page.c_str());
}

}  // namespace spillway::tools
