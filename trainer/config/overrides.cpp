#include "trainer/config/overrides.h"

#include "trainer/plan/toml/plan_toml.h"

namespace spillway::trainer {

bool apply_override(const std::string& text, toml::table* document, std::string* error) {
  const size_t equals = text.find('=');
  const size_t dot = text.find('.');
  if (equals == std::string::npos || dot == std::string::npos || dot > equals) {
    *error = "--set " + text + ": write section.key=value";
    return false;
  }
  const std::string section = text.substr(0, dot), key = text.substr(dot + 1, equals - dot - 1);
  const std::string value = text.substr(equals + 1);
  std::string not_toml;  // then it is a text without quotes
  auto parsed = parse_toml("value = " + value, &not_toml, "--set " + text);
  if (!parsed || parsed->size() != 1)
    parsed = parse_toml("value = '" + value + "'", &not_toml, "--set " + text);
  if (!parsed || parsed->size() != 1)
    return *error = "--set " + text + ": the value is neither TOML nor a text without quotes", false;
  if (!document->contains(section)) document->insert_or_assign(section, toml::table{});
  toml::table* table = document->get(section)->as_table();
  if (!table) return *error = "--set " + text + ": '" + section + "' is no section", false;
  parsed->get("value")->visit([&](auto& node) {
    const toml::source_region source = node.source();
    table->insert_or_assign(toml::key(key, toml::source_region(source)), std::move(node));
  });
  return true;
}

bool override_plan(const std::vector<std::string>& overrides, const Architecture& model, Plan* plan,
                   DeviceSpread* spread, std::string* error) {
  toml::table document;
  for (const std::string& override : overrides) {
    if (!override.starts_with("plan."))
      return *error = "--set " + override + ": write plan.key=value, a key of [plan]", false;
    if (!apply_override(override, &document, error)) return false;
  }
  const toml::table* keys = document.get_as<toml::table>("plan");
  if (keys == nullptr) return true;
  StrictTable table(*keys, "plan");
  Plan read = *plan;
  DeviceSpread read_spread = *spread;
  read_plan(table, model.all_layers(), &read, {nullptr, &read_spread, model.decoder_layers});
  if (!table.finish()) return *error = table.error(), false;
  *plan = read;
  *spread = read_spread;
  return true;
}

}  // namespace spillway::trainer
