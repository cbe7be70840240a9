#include "tools/spillway/report/text/kinds_text.h"

#include <cmath>
#include <nlohmann/json.hpp>

#include "tools/spillway/report/text/table.h"
#include "tools/spillway/units.h"

namespace spillway::tools {
namespace {

// "39 × 192.00 MiB, 2 × 1.53 GiB"
std::string sizes_text(const std::vector<SizeShare>& sizes) {
  std::string text;
  for (const SizeShare& size : sizes)
    text += (text.empty() ? "" : ", ") + std::to_string(size.blocks) + " × " + size_text(size.block_bytes);
  return text;
}

std::string part_text(uint64_t part, uint64_t whole) {
  const double share = whole == 0 ? 0 : 100.0 * static_cast<double>(part) / static_cast<double>(whole);
  return std::to_string(std::lround(share)) + "%";
}

}  // namespace

std::string kinds_text(const std::vector<KindShare>& kinds) {
  if (kinds.empty()) return "";
  uint64_t whole = 0;
  for (const KindShare& kind : kinds) whole += kind.bytes;
  using enum Align;
  Table table({kRight, kRight, kRight, kLeft, kLeft});
  table.add({"bytes", "share", "blocks", "made by", "most of it"});
  for (const KindShare& kind : kinds)
    table.add({size_text(kind.bytes), part_text(kind.bytes, whole), std::to_string(kind.blocks),
               purpose_name(kind.purpose), sizes_text(kind.sizes)});
  return "\nWhat it was for, as far as the stacks tell\n" + table.text("  ");
}

nlohmann::ordered_json kinds_json(const std::vector<KindShare>& kinds) {
  auto list = nlohmann::ordered_json::array();
  for (const KindShare& kind : kinds) {
    auto sizes = nlohmann::ordered_json::array();
    for (const SizeShare& size : kind.sizes)
      sizes.push_back({{"block_bytes", size.block_bytes}, {"blocks", size.blocks}});
    list.push_back({{"made_by", purpose_name(kind.purpose)},
                    {"bytes", kind.bytes},
                    {"blocks", kind.blocks},
                    {"sizes", sizes}});
  }
  return list;
}

}  // namespace spillway::tools
