// What the probe prints: one JSON object a line, each an answer with its unit.
//
//   {"part": "pages", "question": "create", "bytes": 2097152, "count": 16, "value": 29.4, "unit": "us"}
//
// Thread-safety: a line is written by one call of the system's.
#pragma once
#include <cstdint>
#include <initializer_list>
#include <string>
#include <vector>

#include "tools/gpu_probe/driver.h"

namespace spillway::probe {

// A name and its value as JSON.
struct Field {
  Field(const char* name, const std::string& text);
  Field(const char* name, const char* text) : Field(name, std::string(text)) {}
  Field(const char* name, bool flag) : name(name), json(flag ? "true" : "false") {}
  Field(const char* name, int number) : name(name), json(std::to_string(number)) {}
  Field(const char* name, uint64_t number) : name(name), json(std::to_string(number)) {}
  Field(const char* name, double number);
  Field(const char* name, CUresult result) : Field(name, name_of(result)) {}
  std::string name, json;
};

// Of which part the lines are.
void choose_part(const char* name);

// An answer: what was asked, what under which conditions, and in which unit ("" for what has none).
void say(const char* question, const Field& value, const char* unit, std::initializer_list<Field> more = {});
template <typename Value>
void say(const char* question, const Value& value, const char* unit = "",
         std::initializer_list<Field> more = {}) {
  say(question, Field("value", value), unit, more);
}

// What is printed of many measurements of one thing: the median as the value, the best, the worst and how
// many.
void say_times(const char* question, std::vector<double> microseconds,
               std::initializer_list<Field> more = {});

double now_us();  // of a clock that only goes forward

}  // namespace spillway::probe
