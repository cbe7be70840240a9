#include "tools/spillway/rehearse/judge/findings.h"

#include <algorithm>
#include <cstdio>

#include "allocator/request/verdict.h"
#include "base/xml.h"
#include "tools/spillway/report/text/table.h"

namespace spillway::tools {
namespace {

constexpr size_t kMostGrown = 10;

// A cell of a table in Markdown. `tags`: whether what looks like one would be taken for one.
std::string cell(const std::string& text, bool tags) {
  std::string out;
  for (const char c : text) {
    if (c == '|')
      out += "\\|";
    else if (c == '<' && tags)
      out += "&lt;";
    else
      out += c == '\n' ? ' ' : c;
  }
  return out;
}

struct Words {
  const char *text, *mark;
};

Words words_of(Judged judged) {
  switch (judged) {
    case Judged::kPassed:
      return {"ok      ", "✅"};
    case Judged::kPassedIf:
      return {"ok, if  ", "⚠️"};
    case Judged::kFailed:
      return {"FAILED  ", "❌"};
    case Judged::kNot:
      return {"unknown ", "❔"};
  }
  return {"", ""};
}

std::vector<GrownPlace> most(const Finding& finding) {
  return {finding.grown.begin(),
          finding.grown.begin() + static_cast<std::ptrdiff_t>(std::min(kMostGrown, finding.grown.size()))};
}

std::string grown_text(const Finding& finding) {
  using enum Align;
  Table table({kRight, kRight, kRight, kLeft});
  for (const GrownPlace& one : most(finding))
    table.add({"+" + size_text(one.after - one.before), size_text(one.before), "→ " + size_text(one.after),
               one.place});
  return table.text("    ");
}

// What JUnit's test case has in it, "" where it passed.
std::string junit_result(const Finding& finding) {
  const std::string text = xml(finding.text);
  if (finding.judged == Judged::kPassedIf) return "<system-out>" + text + "</system-out>";
  if (finding.judged == Judged::kNot) return "<skipped message=\"" + text + "\"/>";
  if (finding.judged == Judged::kPassed) return "";
  return "<failure message=\"" + text + "\">" + text + "\n" + xml(grown_text(finding)) + "</failure>";
}

}  // namespace

std::string findings_text(const std::vector<Finding>& findings) {
  std::string text;
  for (const Finding& finding : findings)
    text += words_of(finding.judged).text + finding.name + ": " + finding.text + "\n" + grown_text(finding);
  return text;
}

std::string findings_junit(const std::vector<Finding>& findings, double seconds) {
  const auto count = [&findings](Judged judged) {
    return std::to_string(std::count_if(findings.begin(), findings.end(),
                                        [judged](const Finding& f) { return f.judged == judged; }));
  };
  char time[32];
  std::snprintf(time, sizeof time, "%.3f", seconds);
  std::string text =
      "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<testsuites>\n  <testsuite name=\"spillway check\" "
      "tests=\"" +
      std::to_string(findings.size()) + "\" failures=\"" + count(Judged::kFailed) + "\" skipped=\"" +
      count(Judged::kNot) + "\" time=\"" + time + "\">\n";
  for (const Finding& finding : findings) {
    text += "    <testcase classname=\"spillway.check\" name=\"" + xml(finding.name) + "\"";
    const std::string result = junit_result(finding);
    text += result.empty() ? "/>\n" : ">\n      " + result + "\n    </testcase>\n";
  }
  return text + "  </testsuite>\n</testsuites>\n";
}

std::string findings_markdown(const std::vector<Finding>& findings) {
  std::string text = "### GPU memory\n\n| | check | result |\n|---|---|---|\n";
  for (const Finding& finding : findings)
    text += std::string("| ") + words_of(finding.judged).mark + " | " + cell(finding.name, true) + " | " +
            cell(finding.text, true) + " |\n";
  for (const Finding& finding : findings) {
    if (finding.grown.empty()) continue;
    text += "\n" + finding.name + ": what grew\n\n| growth | before | now | place |\n|---:|---:|---:|---|\n";
    for (const GrownPlace& one : most(finding))
      text += "| +" + size_text(one.after - one.before) + " | " + size_text(one.before) + " | " +
              size_text(one.after) + " | `" + cell(one.place, false) + "` |\n";
  }
  return text;
}

}  // namespace spillway::tools
