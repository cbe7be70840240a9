// What ended a training of several ranks: one record, the same in the reports of all of them.
//
// Its number is that of the start of the ranks, which rank 0 draws before the first step: each rank knows it,
// also when nobody can be asked any more.
//
// Thread-safety: values and pure functions. Errors: a text that is no record gives nothing.
#pragma once
#include <cstdint>
#include <optional>
#include <stdexcept>
#include <string>

namespace spillway::trainer {

inline constexpr int64_t kNoSingleRank = -1;
// How the process of a rank ends that an incident has ended.
inline constexpr int kExitOfIncident = 18;

struct Incident {
  std::string number;            // twelve hexadecimal digits
  int64_t rank = kNoSingleRank;  // where it began
  std::string cause;             // "rank 1 died: ...", one line

  std::string text() const { return "incident " + number + ": " + cause; }
  bool operator==(const Incident&) const = default;
};

std::string to_json_text(const Incident& incident);
std::optional<Incident> incident_of(const std::string& json);

std::string new_incident_number();

// How a training ends on a rank that goes on as well as it can, but not without the others.
struct RanksEnded : std::runtime_error {
  explicit RanksEnded(Incident what) : std::runtime_error(what.text()), incident(std::move(what)) {}
  Incident incident;
};

}  // namespace spillway::trainer
