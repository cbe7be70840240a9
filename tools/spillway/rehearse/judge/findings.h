// What check found, as text, as JUnit's XML and as Markdown, the forms that code-hosting sites show.
//
// Thread-safety: pure functions.
#pragma once
#include <string>
#include <vector>

#include "tools/spillway/rehearse/run/baseline.h"

namespace spillway::tools {

std::string findings_text(const std::vector<Finding>& findings);
std::string findings_junit(const std::vector<Finding>& findings, double seconds);
std::string findings_markdown(const std::vector<Finding>& findings);

}  // namespace spillway::tools
