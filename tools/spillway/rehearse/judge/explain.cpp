#include "tools/spillway/rehearse/judge/explain.h"

#include <algorithm>
#include <cmath>
#include <optional>

#include "allocator/request/verdict.h"
#include "simulator/cards/cards.h"
#include "strategies/budget/host_budget.h"
#include "tools/spillway/rehearse/offers.h"
#include "tools/spillway/rehearse/report/report_text.h"
#include "tools/spillway/rehearse/run/workplace.h"

namespace spillway::tools {
namespace {

constexpr const char* kAmple = "4TiB";  // in null mode nothing stands behind it
constexpr const char* kAmpleWhat = "ample memory";

std::optional<Counterfactual> run(Offer offer) {
  offer.options.keep_output = true;
  offer.options.trace.clear();
  offer.options.history = false;
  RunError error;
  auto rehearsal = rehearse_once(offer.options, &error);
  if (!rehearsal) return std::nullopt;
  return Counterfactual{offer.what, offer.options, std::move(*rehearsal)};
}

bool fits(const Counterfactual& run) {
  return decide(run.rehearsal) == Fit::kFits;
}

bool has_probe(const Rehearsal& rehearsal) {
  return std::any_of(rehearsal.processes.begin(), rehearsal.processes.end(),
                     [](const Observation& process) { return process.has_probe; });
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

std::string fraction_text(const Rehearsal& ample, const Explanation& explanation, const OwnLimit& limit) {
  const std::string card = size_text(limit.capacity);
  const auto enough = fraction_enough(ample, explanation);
  return enough ? "  on the same card with " + fraction_call(*enough) + ": enough by memory (not run)\n"
                : "  no fraction of the same card's " + card + " is enough\n";
}

std::string cards_text(const Rehearsal& ample, const Explanation& explanation) {
  if (explanation.only_delayed) return "";
  const CardsByMemory cards = cards_by_memory(ample, explanation);
  if (const std::optional<OwnLimit>& limit = explanation.fraction)
    return fraction_text(ample, explanation, *limit) + "  cards of which " +
           fraction_call(limit->fraction()) + " allows that much (not run): " + listed(cards.enough) + "\n";
  std::string text = "  cards with that much memory (not run): " + listed(cards.enough) + "\n";
  if (!cards.without_cache.empty())
    text += "  cards that hold what is in use, but not all of the cache (not run): " +
            listed(cards.without_cache) + "\n";
  return text;
}

std::string ample_text(const Counterfactual& ample, const Explanation& explanation) {
  const Need need = largest_need(ample.rehearsal);
  if (decide(ample.rehearsal) != Fit::kFits)
    return "  with ample memory the program ended otherwise (exit code " +
           std::to_string(ample.rehearsal.exit_code) + "), so its need is not known\n";
  std::string text = "  with ample memory it takes " + size_text(need.peak) + " of a card";
  if (need.allocated > 0)
    text += ": " + size_text(need.allocated) + " in use by PyTorch at the peak, " + size_text(need.reserved) +
            " held by its cache, " + size_text(need.outside) + " outside it";
  return text + "\n" + cards_text(ample.rehearsal, explanation);
}

std::string on_the_same_card_text(const Counterfactual& other) {
  const Need need = largest_need(other.rehearsal);
  const Fit fit = decide(other.rehearsal);
  const bool survived = other.survives_failures && (fit == Fit::kFits || fit == Fit::kWentOn);
  std::string text =
      "  on the same card " + other.what + ": " + (survived ? "runs to its end" : fit_text(fit));
  if (!survived && fits(other)) text += ", peak " + size_text(need.peak) + " of " + size_text(need.capacity);
  return text + "\n";
}

// PyTorch holds its fraction against what its allocator has reserved.
bool allows(const std::optional<OwnLimit>& fraction, uint64_t capacity, const Need& need) {
  return !fraction ||
         fraction->fraction() * static_cast<double>(capacity) >= static_cast<double>(need.reserved);
}

// What the program had in use at the peak of its fullest device, by kind.
AllocatorView fullest_view(const Rehearsal& rehearsal) {
  AllocatorView fullest;
  for (const Observation& process : rehearsal.processes)
    for (const auto& [ordinal, device] : process.devices)
      if (device.allocator && device.allocator->peak_allocated > fullest.peak_allocated)
        fullest = *device.allocator;
  return fullest;
}

uint64_t activations_of(const AllocatorView& view) {
  const uint64_t others = view.parameters + view.gradients + view.optimizer_state;
  return view.peak_allocated - std::min(others, view.peak_allocated);
}

void try_other_allocators(const RunOptions& options, Explanation* found) {
  for (const Offer& offer : other_allocators(options))
    if (auto other = run(offer)) found->runs.push_back(std::move(*other));
}

void try_checkpointing(const RunOptions& options, const Need& need, const AllocatorView& view,
                       Explanation* found) {
  constexpr uint64_t kWorthTrying = 4;  // activations are a quarter of the need or more
  const uint64_t activations = activations_of(view);
  if (view.gradients + view.optimizer_state == 0 || activations < need.allocated / kWorthTrying) return;
  auto other = run(checkpointing(options));
  const bool applied =
      other && std::any_of(other->rehearsal.processes.begin(), other->rehearsal.processes.end(),
                           [](const Observation& process) { return process.checkpointed_models > 0; });
  if (applied)
    found->runs.push_back(std::move(*other));
  else
    found->remarks.push_back("activations and all else are " + size_text(activations) +
                             " of it: gradient checkpointing (torch.utils.checkpoint) keeps a part of them");
}

void try_smaller_batches(const RunOptions& options, Explanation* found) {
  std::optional<Counterfactual> last;
  for (const Offer& offer : smaller_batches(options)) {
    last = run(offer);
    if (last && fits(*last)) break;
  }
  if (last)
    found->runs.push_back(std::move(*last));
  else
    found->remarks.push_back(
        "the largest batch that fits: spillway rehearse --find batch=1..64, with {batch} in the command");
}

void remark_on_optimizer(const Need& need, const AllocatorView& view, Explanation* found) {
  constexpr uint64_t kWorthSaying = 20;  // a twentieth of the need or more
  if (view.optimizer_state < std::max<uint64_t>(need.allocated / kWorthSaying, 1)) return;
  found->remarks.push_back("the optimizer's state is " + size_text(view.optimizer_state) +
                           " of it; one that keeps it in 8 bits takes about " +
                           size_text(view.optimizer_state / 4));
}

// Pinned memory that a simulated card's memory is moved to is this machine's.
void try_moving_to_host(const RunOptions& options, uint64_t beyond, Explanation* found) {
  const uint64_t budget = default_host_budget_bytes(1);
  const std::string takes = size_text(beyond) + " of host memory";
  const Workplace place;
  if (beyond > budget || place.path().empty()) {
    found->remarks.push_back("under spillway run --mode replace it would take " + takes + " or more; " +
                             size_text(budget) + " may be used here (half of what is available)");
    return;
  }
  auto other = run(memory_moved_to_host(options, place.path()));
  if (!other) return;
  other->what += " (" + takes + ")";
  other->survives_failures = true;
  found->runs.push_back(std::move(*other));
}

// What every answer has to keep to.
Explanation bounds_of(const Rehearsal& first) {
  Explanation bounds;
  bounds.refused_on = largest_need(first).capacity;
  if (const auto diagnosis = diagnose(first)) {
    bounds.only_delayed = diagnosis->cause == Cause::kLeak;
    if (diagnosis->own_limit && diagnosis->own_limit->is_fraction) bounds.fraction = diagnosis->own_limit;
  }
  return bounds;
}

void try_changes(const RunOptions& options, const Rehearsal& ample, const Need& need, uint64_t capacity,
                 Explanation* found) {
  const AllocatorView view = fullest_view(ample);
  try_checkpointing(options, need, view, found);
  try_smaller_batches(options, found);
  remark_on_optimizer(need, view, found);
  if (options.allocator == "native")
    try_moving_to_host(options, need.allocated + need.outside - capacity, found);
}

}  // namespace

// The largest part of the need does not depend on the card, but which kernels are chosen and what the
// libraries take do.
CardsByMemory cards_by_memory(const Rehearsal& rehearsal, const Explanation& explanation) {
  const Need need = largest_need(rehearsal);
  CardsByMemory found;
  for (const cards::Card& card : usable_cards(rehearsal)) {
    if (card.capacity_bytes <= explanation.refused_on) continue;
    if (!allows(explanation.fraction, card.capacity_bytes, need)) continue;
    if (card.capacity_bytes >= need.peak)
      found.enough.emplace_back(card.id);
    else if (card.capacity_bytes >= need.allocated + need.outside)
      found.without_cache.emplace_back(card.id);
  }
  return found;
}

std::optional<double> fraction_enough(const Rehearsal& ample, const Explanation& explanation) {
  const Need need = largest_need(ample);
  if (!explanation.fraction || need.peak > explanation.fraction->capacity) return std::nullopt;
  const double share =
      static_cast<double>(need.reserved) / static_cast<double>(explanation.fraction->capacity);
  return std::min(std::ceil(share * 100) / 100, 1.0);
}

bool is_ample(const Counterfactual& run) {
  return run.what == kAmpleWhat;
}

std::string listed(const std::vector<std::string>& names) {
  std::string text;
  for (const std::string& name : names) text += (text.empty() ? "" : ", ") + name;
  return text.empty() ? "none of the table" : text;
}

Explanation find_what_fits(const RunOptions& given, const Rehearsal& first) {
  Explanation found = bounds_of(first);
  const auto diagnosis = diagnose(first);
  const bool has_limit = diagnosis && diagnosis->cause == Cause::kLimit;
  if (has_limit && !found.fraction) return found;  // it holds on every card
  RunOptions options = given;
  if (first.with_all_masks) options.machine.masks = "none";  // as in the run that is explained
  Offer ample{kAmpleWhat, options};
  ample.options.machine.capacity = kAmple;
  if (auto shown = run(ample)) found.runs.push_back(std::move(*shown));
  if (found.runs.empty() || !fits(found.runs.front()) || !has_probe(first)) return found;
  if (found.only_delayed || has_limit) return found;
  const Rehearsal with_ample = found.runs.front().rehearsal;
  const Need need = largest_need(with_ample);
  const uint64_t capacity = largest_need(first).capacity;
  // Another allocator helps where the program's own need has room, and only its placement has not.
  if (need.allocated + need.outside <= capacity)
    try_other_allocators(options, &found);
  else
    try_changes(options, with_ample, need, capacity, &found);
  return found;
}

std::string explain(const Explanation& explanation) {
  if (explanation.runs.empty()) return "";
  std::string text = "what would have fitted (each line is a run)\n";
  for (const Counterfactual& other : explanation.runs)
    text += is_ample(other) ? ample_text(other, explanation) : on_the_same_card_text(other);
  if (!explanation.remarks.empty()) text += "not run\n";
  for (const std::string& remark : explanation.remarks) text += "  " + remark + "\n";
  return text;
}

}  // namespace spillway::tools
