#include "tools/spillway/report/lines_text.h"

#include <set>

#include "tools/spillway/report/table.h"

namespace spillway::tools {

std::string lines_text(const std::vector<StackName>& places, SourceLines* sources) {
  Table table({Align::kLeft, Align::kLeft});
  std::set<std::string> told;
  for (const StackName& name : places)
    for (const std::string& place : {name.where, name.caller})
      if (const std::string line = sources->of(place); !line.empty() && told.insert(place).second)
        table.add({place, line});
  return told.empty() ? "" : "\nThose lines\n" + table.text("  ");
}

}  // namespace spillway::tools
