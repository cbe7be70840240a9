// What a fuzzer asks of a result. libFuzzer takes an abort for a finding.
#pragma once
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

namespace spillway::fuzz {

inline void promise(bool kept, const char* what, std::string_view seen = "") {
  if (kept) return;
  std::fprintf(stderr, "A promise is broken: %s\n%.*s\n", what, static_cast<int>(seen.size()), seen.data());
  std::abort();
}

inline void promise_holds(std::string_view text, std::string_view part) {
  promise(text.find(part) != text.npos, ("the text holds '" + std::string(part) + "'").c_str(), text);
}

inline nlohmann::json json_of(const std::string& text) {
  auto json = nlohmann::json::parse(text, nullptr, false);
  promise(!json.is_discarded(), "the JSON is JSON", text);
  return json;
}

// A number that follows from the input: what a harness chooses is the same when a finding is repeated.
inline uint64_t choice_of(const uint8_t* data, size_t size) {
  uint64_t hash = 0xcbf29ce484222325ull;
  for (size_t i = 0; i < size; ++i) hash = (hash ^ data[i]) * 0x100000001b3ull;
  return hash ^ (hash >> 29);
}

}  // namespace spillway::fuzz
