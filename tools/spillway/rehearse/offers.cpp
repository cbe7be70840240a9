#include "tools/spillway/rehearse/offers.h"

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <optional>
#include <string_view>

namespace spillway::tools {
namespace {

constexpr int kMostHalvings = 3;

// "--train_Batch-Size" as "train-batch-size".
std::string plain_name(std::string_view argument) {
  std::string name(argument.substr(std::min(argument.find_first_not_of('-'), argument.size())));
  std::ranges::transform(name, name.begin(), [](unsigned char c) {
    return c == '_' || c == '.' ? '-' : static_cast<char>(c >= 'A' && c <= 'Z' ? c - 'A' + 'a' : c);
  });
  return name;
}

bool names_a_batch(std::string_view argument) {
  const std::string name = plain_name(argument);
  if (name.find("eval") != std::string::npos || name.find("test") != std::string::npos ||
      name.find("val-") != std::string::npos)
    return false;
  return name == "batch" || name == "bs" || name == "batch-size" || name.ends_with("-batch-size");
}

std::optional<int> whole_number(std::string_view text) {
  int number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return number;
}

struct BatchArgument {
  size_t index = 0;    // of the word with the number
  std::string before;  // of the number within it, "--batch-size="
  std::string name;    // as it is shown, "--batch-size "
  int size = 0;
};

std::vector<BatchArgument> batch_arguments(const Words& command) {
  std::vector<BatchArgument> found;
  for (size_t i = 0; i < command.size(); ++i) {
    const std::string& word = command[i];
    if (const size_t equals = word.find('='); equals != std::string::npos) {
      const auto number = whole_number(std::string_view(word).substr(equals + 1));
      const std::string before = word.substr(0, equals + 1);
      if (number && names_a_batch(std::string_view(word).substr(0, equals)))
        found.push_back({i, before, before, *number});
    } else if (word.starts_with('-') && i + 1 < command.size() && names_a_batch(word)) {
      if (const auto number = whole_number(command[i + 1])) found.push_back({i + 1, "", word + " ", *number});
    }
  }
  return found;
}

}  // namespace

std::vector<Offer> other_allocators(const RunOptions& options) {
  std::vector<Offer> offers;
  for (const char* allocator : {"expandable", "spillway"}) {
    if (options.allocator == allocator) continue;
    offers.push_back({std::string("with --allocator ") + allocator, options});
    offers.back().options.allocator = allocator;
  }
  return offers;
}

std::vector<Offer> smaller_batches(const RunOptions& options) {
  const std::vector<BatchArgument> arguments = batch_arguments(options.command);
  std::vector<Offer> offers;
  if (arguments.size() != 1) return offers;
  const BatchArgument& batch = arguments.front();
  for (int size = batch.size / 2; size >= 1 && offers.size() < kMostHalvings; size /= 2) {
    offers.push_back(
        {"with " + batch.name + std::to_string(size) + " in place of " + std::to_string(batch.size),
         options});
    offers.back().options.command[batch.index] = batch.before + std::to_string(size);
  }
  return offers;
}

Offer checkpointing(const RunOptions& options) {
  Offer offer{"with gradient checkpointing (model.gradient_checkpointing_enable())", options};
  offer.options.checkpointing = true;
  return offer;
}

Offer memory_moved_to_host(const RunOptions& options, const std::string& folder) {
  Offer offer{"under spillway run --mode replace", options};
  const Words run = {std::filesystem::read_symlink("/proc/self/exe"),
                     "run",
                     "--quiet",
                     "--mode",
                     "replace",
                     "--trace",
                     folder + "/%p.spill",
                     "--"};
  offer.options.command.insert(offer.options.command.begin(), run.begin(), run.end());
  return offer;
}

}  // namespace spillway::tools
