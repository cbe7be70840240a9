#include "tools/spillway/rehearse/findings.h"

#include <algorithm>
#include <cstdio>

#include "spillway/allocator/verdict.h"
#include "tools/spillway/report/table.h"

namespace spillway::tools {
namespace {

constexpr size_t kMostGrown = 10;

std::string xml(const std::string& text) {
  std::string out;
  for (const char c : text) {
    if (c == '<')
      out += "&lt;";
    else if (c == '>')
      out += "&gt;";
    else if (c == '&')
      out += "&amp;";
    else if (c == '"')
      out += "&quot;";
    else if (static_cast<unsigned char>(c) >= 0x20 || c == '\n' || c == '\t')
      out += c;
  }
  return out;
}

// A cell of a table in Markdown.
std::string cell(const std::string& text) {
  std::string out;
  for (const char c : text) out += c == '|' ? std::string("\\|") : c == '\n' ? " " : std::string(1, c);
  return out;
}

std::vector<Growth> most(const Finding& finding) {
  return {finding.grown.begin(),
          finding.grown.begin() + static_cast<std::ptrdiff_t>(std::min(kMostGrown, finding.grown.size()))};
}

std::string grown_text(const Finding& finding) {
  using enum Align;
  Table table({kRight, kRight, kRight, kLeft});
  for (const Growth& one : most(finding))
    table.add({"+" + size_text(one.after - one.before), size_text(one.before), "→ " + size_text(one.after),
               one.place});
  return table.text("    ");
}

}  // namespace

std::string findings_text(const std::vector<Finding>& findings) {
  std::string text;
  for (const Finding& finding : findings)
    text += std::string(finding.passed ? "ok      " : "FAILED  ") + finding.name + ": " + finding.text +
            "\n" + grown_text(finding);
  return text;
}

std::string findings_junit(const std::vector<Finding>& findings, double seconds) {
  const auto failed =
      std::count_if(findings.begin(), findings.end(), [](const Finding& f) { return !f.passed; });
  char time[32];
  std::snprintf(time, sizeof time, "%.3f", seconds);
  std::string text =
      "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<testsuites>\n  <testsuite name=\"spillway check\" "
      "tests=\"" +
      std::to_string(findings.size()) + "\" failures=\"" + std::to_string(failed) + "\" time=\"" + time +
      "\">\n";
  for (const Finding& finding : findings) {
    text += "    <testcase classname=\"spillway.check\" name=\"" + xml(finding.name) + "\"";
    if (finding.passed) {
      text += "/>\n";
      continue;
    }
    text += ">\n      <failure message=\"" + xml(finding.text) + "\">" +
            xml(finding.text + "\n" + grown_text(finding)) + "</failure>\n    </testcase>\n";
  }
  return text + "  </testsuite>\n</testsuites>\n";
}

std::string findings_markdown(const std::vector<Finding>& findings) {
  std::string text = "### GPU memory\n\n| | check | result |\n|---|---|---|\n";
  for (const Finding& finding : findings)
    text += std::string("| ") + (finding.passed ? "✅" : "❌") + " | " + cell(finding.name) + " | " +
            cell(finding.text) + " |\n";
  for (const Finding& finding : findings) {
    if (finding.grown.empty()) continue;
    text += "\n" + finding.name + ": what grew\n\n| growth | before | now | place |\n|---:|---:|---:|---|\n";
    for (const Growth& one : most(finding))
      text += "| +" + size_text(one.after - one.before) + " | " + size_text(one.before) + " | " +
              size_text(one.after) + " | `" + cell(one.place) + "` |\n";
  }
  return text;
}

}  // namespace spillway::tools
