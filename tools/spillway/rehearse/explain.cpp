#include "tools/spillway/rehearse/explain.h"

#include <algorithm>

#include "simulator/cards/cards.h"
#include "spillway/allocator/verdict.h"
#include "tools/spillway/rehearse/report_text.h"

namespace spillway::tools {
namespace {

constexpr const char* kAmple = "4TiB";  // in null mode nothing stands behind it
constexpr const char* kAmpleWhat = "ample memory";

void run(const std::string& what, RunOptions options, std::vector<Counterfactual>* out) {
  options.keep_output = true;
  options.trace.clear();
  RunError error;
  auto rehearsal = rehearse_once(options, &error);
  if (rehearsal) out->push_back({what, options, std::move(*rehearsal)});
}

bool has_probe(const Rehearsal& rehearsal) {
  return std::any_of(rehearsal.processes.begin(), rehearsal.processes.end(),
                     [](const Observation& process) { return process.has_probe; });
}

std::string listed(const std::vector<std::string_view>& names) {
  std::string text;
  for (const std::string_view name : names) text += (text.empty() ? "" : ", ") + std::string(name);
  return text.empty() ? "none of the table" : text;
}

std::vector<cards::Card> usable_cards(const Rehearsal& rehearsal) {
  std::vector<cards::Card> usable;
  for (const cards::Card& card : cards::cards())
    if (has_kernels_for(rehearsal, card)) usable.push_back(card);
  std::stable_sort(usable.begin(), usable.end(), [](const cards::Card& a, const cards::Card& b) {
    return a.capacity_bytes < b.capacity_bytes;
  });
  return usable;
}

// By memory alone, of the cards that can run the program: the largest part of the need does not depend on the
// card, but which kernels are chosen and what the libraries take do.
std::string cards_text(const Rehearsal& rehearsal) {
  const Need need = largest_need(rehearsal);
  std::vector<std::string_view> all_of_it, without_cache;
  for (const cards::Card& card : usable_cards(rehearsal)) {
    if (card.capacity_bytes >= need.peak)
      all_of_it.push_back(card.id);
    else if (card.capacity_bytes >= need.allocated + need.outside)
      without_cache.push_back(card.id);
  }
  std::string text = "  cards with that much memory (not run): " + listed(all_of_it) + "\n";
  if (!without_cache.empty())
    text += "  cards that hold what is in use, but not all of the cache (not run): " + listed(without_cache) +
            "\n";
  return text;
}

std::string ample_text(const Counterfactual& ample) {
  const Need need = largest_need(ample.rehearsal);
  if (decide(ample.rehearsal) != Fit::kFits)
    return "  with ample memory the program ended otherwise (exit code " +
           std::to_string(ample.rehearsal.exit_code) + "), so its need is not known\n";
  std::string text = "  with ample memory it takes " + size_text(need.peak) + " of a card";
  if (need.allocated > 0)
    text += ": " + size_text(need.allocated) + " in use by PyTorch at the peak, " + size_text(need.reserved) +
            " held by its cache, " + size_text(need.outside) + " outside it";
  return text + "\n" + cards_text(ample.rehearsal);
}

std::string allocator_text(const Counterfactual& other) {
  const Need need = largest_need(other.rehearsal);
  const Fit fit = decide(other.rehearsal);
  std::string text = "  on the same card with " + other.what + ": " + fit_text(fit);
  if (fit == Fit::kFits) text += ", peak " + size_text(need.peak) + " of " + size_text(need.capacity);
  return text + "\n";
}

}  // namespace

std::vector<Counterfactual> run_counterfactuals(const RunOptions& options, const Rehearsal& first) {
  std::vector<Counterfactual> others;
  RunOptions ample = options;
  ample.machine.capacity = kAmple;
  run(kAmpleWhat, ample, &others);
  if (others.empty() || decide(others.front().rehearsal) != Fit::kFits || !has_probe(first)) return others;
  const Need need = largest_need(others.front().rehearsal);
  const uint64_t capacity = largest_need(first).capacity;
  // Another allocator helps where the program's own need has room, and only its placement has not.
  if (need.allocated + need.outside > capacity) return others;
  for (const char* allocator : {"expandable", "spillway"}) {
    if (options.allocator == allocator) continue;
    RunOptions other = options;
    other.allocator = allocator;
    run(std::string("--allocator ") + allocator, other, &others);
  }
  return others;
}

std::string explain(const Rehearsal&, const std::vector<Counterfactual>& others) {
  if (others.empty()) return "";
  std::string text = "what would have fitted (each line is a run)\n";
  for (const Counterfactual& other : others)
    text += other.what == kAmpleWhat ? ample_text(other) : allocator_text(other);
  return text;
}

}  // namespace spillway::tools
