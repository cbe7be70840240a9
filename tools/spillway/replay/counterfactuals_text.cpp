#include <nlohmann/json.hpp>

#include "tools/spillway/replay/counterfactuals.h"
#include "tools/spillway/report/text/table.h"

namespace spillway::tools {
namespace {

const char* answer_of(const Alternative& item) {
  return !item.fits ? "?" : *item.fits ? "yes" : "no";
}

}  // namespace

std::string counterfactuals_text(const Counterfactuals& fitted) {
  std::string text = "\nWhat would have fitted\n";
  if (!fitted.no_answer.empty()) return text + "  No answer: " + fitted.no_answer + ".\n";
  // First: a user who follows "yes" must know what it answers.
  text += "  For this one request; what the program would have asked for next is not known.\n";
  using enum Align;
  Table table({kLeft, kLeft, kLeft, kLeft});
  table.add({"fits", "what", "how it is known", ""});
  for (const Alternative& item : fitted.items)
    table.add({answer_of(item), item.what, sureness_name(item.sure), item.text});
  text += table.text("  ");
  for (const Alternative& item : fitted.items)
    if (!item.setting.empty() && item.fits == true)
      text += "  to try " + item.what + ": " + item.setting + "\n";
  for (const std::string& note : fitted.notes) text += "  less sure: " + note + "\n";
  return text;
}

std::string counterfactuals_json(const Counterfactuals* fitted) {
  using Json = nlohmann::ordered_json;
  Json list = Json::array(), notes = Json::array();
  if (fitted == nullptr)
    return Json{{"counterfactuals", list}, {"no_counterfactuals", Json()}, {"less_sure", notes}}.dump();
  for (const Alternative& item : fitted->items)
    list.push_back({{"what", item.what},
                    {"setting", item.setting},
                    {"fits", item.fits ? Json(*item.fits) : Json()},
                    {"bytes", item.bytes ? Json(*item.bytes) : Json()},
                    {"needed_bytes", item.needed ? Json(*item.needed) : Json()},
                    {"text", item.text},
                    {"sure", sureness_name(item.sure)}});
  for (const std::string& note : fitted->notes) notes.push_back(note);
  const Json json = {{"counterfactuals", list},
                     {"no_counterfactuals", fitted->no_answer.empty() ? Json() : Json(fitted->no_answer)},
                     {"less_sure", notes}};
  return json.dump(-1, ' ', false, Json::error_handler_t::replace);
}

}  // namespace spillway::tools
