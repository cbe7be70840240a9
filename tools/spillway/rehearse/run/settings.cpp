#include "tools/spillway/rehearse/run/settings.h"

#include <algorithm>

#include "simulator/cards/cards.h"
#include "tools/spillway/rehearse/report/report_text.h"
#include "tools/spillway/units.h"

namespace spillway::tools {
namespace {

// The environment and the program can ask for expandable segments too.
std::optional<std::string> allocator_in_force(const RunOptions& options, const Rehearsal& rehearsal) {
  if (options.allocator != "native") return options.allocator;
  for (const Observation& process : rehearsal.processes)
    if (process.has_probe && !process.allocator.empty())
      return process.expandable_segments ? "expandable" : process.allocator;
  return std::nullopt;
}

std::string text_of(const std::string& name) {
  return name.empty() ? "none" : name;
}

std::string steps_text(uint64_t steps) {
  return steps == 0 ? "all" : std::to_string(steps);
}

class Differences {
 public:
  template <typename Value, typename Text>
  void add(const char* what, const std::optional<Value>& there, const std::optional<Value>& here, Text text) {
    if (!there || !here || *there == *here) return;
    text_ += (text_.empty() ? "" : "; ") + std::string(what) + ": " + text(*there) + " there, " +
             text(*here) + " here";
  }
  const std::string& text() const { return text_; }

 private:
  std::string text_;
};

}  // namespace

Settings settings_asked(const RunOptions& options) {
  Settings asked;
  asked.steps = options.steps;
  asked.values = options.machine.values;
  if (options.allocator != "native") asked.allocator = options.allocator;
  if (options.machine.gpus) asked.gpus = static_cast<uint64_t>(*options.machine.gpus);
  if (options.machine.capacity) asked.capacity_bytes = parse_size(*options.machine.capacity);
  const cards::Card* card = options.machine.card ? cards::find_card(*options.machine.card) : nullptr;
  if (card == nullptr) return asked;
  asked.card = card->id;
  // A file wins over the card's own capacity.
  if (!options.machine.capacity && options.machine.config.empty())
    asked.capacity_bytes = card->capacity_bytes;
  return asked;
}

Settings settings_of(const RunOptions& options, const Rehearsal& rehearsal) {
  Settings known = settings_asked(options);
  known.allocator = allocator_in_force(options, rehearsal);
  known.values = values_of(options, rehearsal);
  if (rehearsal.cards.empty()) return known;
  known.card = rehearsal.card;
  known.gpus = rehearsal.cards.size();
  known.capacity_bytes = rehearsal.cards.begin()->second.capacity;  // every card of a machine is of one kind
  return known;
}

std::string differences(const Settings& there, const Settings& here) {
  Differences found;
  const auto count = [](uint64_t number) { return std::to_string(number); };
  found.add("card", there.card, here.card, text_of);
  found.add("memory of a card", there.capacity_bytes, here.capacity_bytes, exact_size_text);
  found.add("cards", there.gpus, here.gpus, count);
  found.add("allocator", there.allocator, here.allocator, text_of);
  found.add("values", there.values, here.values, text_of);
  found.add("steps", there.steps, here.steps, steps_text);
  return found.text();
}

}  // namespace spillway::tools
