#include "tools/gpu_probe/output.h"

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <numeric>

namespace spillway::probe {
namespace {

std::string part_name;

std::string quoted(const std::string& text) {
  std::string out = "\"";
  for (const char letter : text) {
    const auto code = static_cast<unsigned char>(letter);
    if (letter == '"' || letter == '\\') out += '\\';
    if (code >= 0x20)
      out += letter;
    else
      out += ' ';
  }
  return out + '"';
}

std::string number(double value) {
  if (!std::isfinite(value)) return "null";
  char text[40];
  std::snprintf(text, sizeof text, "%.6g", value);
  return text;
}

void append(std::string& line, const Field& field) {
  line += ", \"" + field.name + "\": " + field.json;
}

}  // namespace

Field::Field(const char* name, const std::string& text) : name(name), json(quoted(text)) {}
Field::Field(const char* name, double value) : name(name), json(number(value)) {}

void choose_part(const char* name) {
  part_name = name;
}

void say(const char* question, const Field& value, const char* unit, std::initializer_list<Field> more) {
  std::string line = "{\"part\": " + quoted(part_name) + ", \"question\": " + quoted(question);
  for (const Field& field : more) append(line, field);
  append(line, value);
  append(line, Field("unit", unit));
  line += "}\n";
  for (size_t done = 0; done < line.size();) {
    const ssize_t written = write(STDOUT_FILENO, line.data() + done, line.size() - done);
    if (written <= 0) return;
    done += static_cast<size_t>(written);
  }
}

void say_times(const char* question, std::vector<double> microseconds, std::initializer_list<Field> more) {
  if (microseconds.empty()) return;
  std::sort(microseconds.begin(), microseconds.end());
  const double median = microseconds[microseconds.size() / 2];
  const double total = std::accumulate(microseconds.begin(), microseconds.end(), 0.0);
  std::string line_of_more;
  for (const Field& field : more) append(line_of_more, field);
  // The conditions and the spread go into one field list, in this order.
  Field value("value", median);
  value.json += ", \"least\": " + number(microseconds.front()) +
                ", \"most\": " + number(microseconds.back()) + ", \"total\": " + number(total) +
                ", \"times\": " + std::to_string(microseconds.size()) + line_of_more;
  say(question, value, "us");
}

double now_us() {
  const auto now = std::chrono::steady_clock::now().time_since_epoch();
  return std::chrono::duration<double, std::micro>(now).count();
}

}  // namespace spillway::probe
