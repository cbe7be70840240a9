#include "trainer/checkpoint/saved_plan.h"

namespace spillway::trainer {
namespace {

constexpr const char *kPlan = "plan", *kConfigured = "configured_plan", *kHow = "configured_plan.how",
                     *kHeld = "guarantee";

std::optional<Guarantee> guarantee_of(const std::string& name) {
  for (const Guarantee guarantee :
       {Guarantee::kBitExact, Guarantee::kNumericallyEqual, Guarantee::kStatisticsChange})
    if (name == name_of(guarantee)) return guarantee;
  return std::nullopt;
}

const char* text_of(DeviceSpread spread) {
  switch (spread) {
    case DeviceSpread::kGiven:
      return "given";
    case DeviceSpread::kEven:
      return "even";
    case DeviceSpread::kBalanced:
      return "balanced";
    case DeviceSpread::kBalancedTime:
      return "balanced_time";
  }
  return "";
}

}  // namespace

ConfiguredPlan configured_plan(const Config& config) {
  const char* const chosen = config.automatic_plan          ? "the plan"
                             : config.automatic_micro_batch ? "the micro-batch"
                                                            : "nothing";
  return {config.plan, std::string("chooses ") + chosen + ", devices " + text_of(config.spread)};
}

void add_to_metadata(const SavedPlan& saved, Metadata* metadata) {
  (*metadata)[kPlan] = to_toml(saved.plan);
  if (saved.configured) {
    (*metadata)[kConfigured] = to_toml(saved.configured->plan);
    (*metadata)[kHow] = saved.configured->how;
  }
  if (saved.held) (*metadata)[kHeld] = name_of(*saved.held);
}

std::optional<SavedPlan> saved_plan_of(const Metadata& metadata, uint32_t layers, std::string* error) {
  const auto read = [&](const char* key) -> std::optional<Plan> {
    const auto it = metadata.find(key);
    if (it == metadata.end()) return *error = std::string("its metadata has no ") + key, std::nullopt;
    auto plan = parse_plan(it->second, layers, Plan{}, error);
    if (!plan) *error = std::string("its ") + key + ": " + *error;
    return plan;
  };
  auto plan = read(kPlan);
  if (!plan) return std::nullopt;
  SavedPlan saved{std::move(*plan)};
  if (metadata.contains(kConfigured) && metadata.contains(kHow)) {
    auto configured = read(kConfigured);
    if (!configured) return std::nullopt;
    saved.configured = {std::move(*configured), metadata.at(kHow)};
  }
  if (const auto held = metadata.find(kHeld); held != metadata.end()) {
    saved.held = guarantee_of(held->second);
    if (!saved.held) return *error = "its guarantee is '" + held->second + "'", std::nullopt;
  }
  return saved;
}

}  // namespace spillway::trainer
