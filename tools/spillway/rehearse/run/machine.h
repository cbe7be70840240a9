// What the file of the shared machine says when the programs have ended: every process that used a card, also
// one that ended by a signal or by _exit and left no report.
//
// Thread-safety: plain values, pure functions but for the one that reads the file. Errors: a file that is
// none is an empty record; no number in it is trusted. Units: bytes.
#pragma once
#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "tools/spillway/rehearse/judge/observation.h"

namespace spillway::tools {

struct CardRecord {
  uint64_t capacity = 0, peak = 0;                     // of all processes together
  uint64_t gone = 0, gone_peak = 0, gone_refused = 0;  // ended processes that the file has no place for
};

struct ProcessRecord {
  int64_t pid = 0;
  uint64_t start = 0;
  std::vector<DeviceObservation> devices;
};

struct MachineRecord {
  std::string card;                 // the kind of every card, "" where only a capacity was given
  std::map<int, CardRecord> cards;  // that a process could see, by physical number
  std::vector<ProcessRecord> processes;
};

MachineRecord read_machine(const std::string& path);

// Adds what the reports lack. `before`: what the file said when the programs were started.
void add_unreported(const MachineRecord& machine, const MachineRecord& before, std::vector<Observation>* all);

}  // namespace spillway::tools
