#include <cstring>
#include <nlohmann/json.hpp>
#include <utility>

#include "base/output_file.h"
#include "trainer/report/report.h"

namespace spillway::trainer {

bool write_report(const RunReport& report, const std::string& folder, std::string* error) {
  using Json = nlohmann::ordered_json;
  const std::pair<const char*, std::string> files[] = {
      {"report.txt", report_text(report)},
      {"report.json", report_json(report).dump(1, ' ', false, Json::error_handler_t::replace) + "\n"},
      {"report.svg", report_svg(report)}};
  for (const auto& [name, text] : files) {
    const std::string path = folder + "/" + name;
    if (const int code = write_text(path, text); code != 0) {
      *error = "the run's report could not be written: " + path + ": " + std::strerror(code);
      return false;
    }
  }
  return true;
}

}  // namespace spillway::trainer
