#include "tools/spillway/report/text/last_events_text.h"

#include <nlohmann/json.hpp>

#include "tools/spillway/report/text/table.h"
#include "tools/spillway/units.h"

namespace spillway::tools {
namespace {

using Json = nlohmann::ordered_json;

std::string when_text(const EventGroup& group) {
  if (!group.from_us || !group.until_us) return "";
  const std::string from = duration_text(*group.from_us), until = duration_text(*group.until_us);
  return from == until ? from : from + " to " + until;
}

std::string place_text(const EventGroup& group) {
  if (group.place.where.empty()) return group.deed == Deed::kAllocated ? "not taken" : "";
  const StackName& place = group.place;
  return place.where + (place.caller.empty() ? "" : "  from " + place.caller);
}

std::string rest_text(const LastEvents& last) {
  std::string text;
  if (last.earlier > 0) text += "  " + count_text(last.earlier, "event is", "events are") + " older\n";
  if (last.later > 0)
    text += "  " + count_text(last.later, "event", "events") +
            " came after it, such as what the exception freed\n";
  return text;
}

Json or_null(const std::optional<uint64_t>& value) {
  return value ? Json(*value) : Json();
}

Json text_or_null(const std::string& text) {
  return text.empty() ? Json() : Json(text);
}

Json json_of(const EventGroup& group) {
  return {{"what", deed_name(group.deed)},
          {"count", group.count},
          {"bytes", group.bytes},
          {"smallest_bytes", group.least},
          {"largest_bytes", group.most},
          {"freed_again", group.freed_again},
          {"where", text_or_null(group.place.where)},
          {"caller", text_or_null(group.place.caller)},
          {"from_us", or_null(group.from_us)},
          {"until_us", or_null(group.until_us)},
          {"text", group_text(group)}};
}

}  // namespace

std::string last_events_text(const LastEvents& last) {
  if (last.groups.empty()) return "";
  Table table({Align::kRight, Align::kLeft, Align::kLeft});
  table.add({last.of_failure ? "before it" : "before the end", "what", "place"});
  for (const EventGroup& group : last.groups)
    table.add({when_text(group), group_text(group), place_text(group)});
  return std::string(last.of_failure ? "Before the failure" : "The last events") + "\n" + table.text("  ") +
         rest_text(last);
}

Json last_events_json(const LastEvents& last) {
  Json groups = Json::array();
  for (const EventGroup& group : last.groups) groups.push_back(json_of(group));
  return {{"before_the_failure", last.of_failure},
          {"groups", groups},
          {"earlier", last.earlier},
          {"later", last.later}};
}

}  // namespace spillway::tools
