// What a rehearsal showed: whether the program fits, and why not.
//
// Thread-safety: plain values, pure functions. Units: bytes.
#pragma once
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "allocator/request/verdict.h"
#include "simulator/cards/overheads.h"
#include "tools/spillway/rehearse/judge/observation.h"
#include "tools/spillway/rehearse/run/machine.h"

namespace spillway::tools {

enum class Fit {
  kFits,
  kDoesNotFit,     // it ended because a request failed
  kWentOn,         // requests failed, and the program dealt with it
  kProgramFailed,  // it ended for another reason, or for one that is not known
  kNoDevice,       // it ended well and used no device
  kNoKernels,      // it has no code that runs on this kind of card
};

// How a run ended.
struct Ending {
  Fit fit = Fit::kFits;
  int exit_code = 0;
};

class Workplace;
struct HistoryFindings;

struct Rehearsal {
  int exit_code = 0;   // the program's; 128 + the signal that ended it
  int stopped_by = 0;  // the signal by which we were told to stop it
  double seconds = 0;
  std::vector<Observation> processes;
  std::string card;                 // the kind of every card, "" where only a capacity was given
  std::map<int, CardRecord> cards;  // by physical number, as the machine's file says
  std::vector<std::string> damaged;
  std::string unwritten;                 // why a --trace is not there, or not whole
  std::optional<Ending> with_all_masks;  // of the run that made this one a run with --masks none
  // Of the device that decided it, where the history of its events was kept and looked into (diagnosis.h).
  std::shared_ptr<const HistoryFindings> findings;
  std::shared_ptr<const Workplace> place;  // keeps the files that `processes` name
  std::string log;  // the end of what the program printed, where it was kept from the terminal
};

Fit decide(const Rehearsal& rehearsal);

// Whether the program has code that `card` can run; true where that is not known.
bool has_kernels_for(const Rehearsal& rehearsal, const cards::Card& card);

// Whether it says something of memory.
bool is_verdict(Fit fit);

// Requests that could not be served, by who asked.
struct FailedRequests {
  uint64_t allocator = 0;  // the program, of PyTorch's allocator
  uint64_t outside = 0;    // of the card: the driver, a library, the program itself
  uint64_t unsure = 0;     // of the card: PyTorch's allocator, which tried again, or the program itself
  uint64_t seen() const { return allocator + outside; }  // by the program, for certain
};
FailedRequests failed_requests(const Observation& process);
FailedRequests failed_requests(const Rehearsal& rehearsal);
// Whether the card refused anything at all, and be it to an allocator that then found room in its cache.
bool refused_anything(const Rehearsal& rehearsal);

// The first failure of the process that ended by it, or the first of all. Null: none was recorded.
struct FailureOf {
  const Observation* process = nullptr;
  const Failure* failure = nullptr;
};
FailureOf deciding_failure(const Rehearsal& rehearsal);

// Why `failure` could not be served, by PyTorch's figures alone (diagnosis.h knows more of the one that
// decided).
Verdict verdict_of(const FailureOf& failure);

// The most that any card of the program needed, and the room that its card had then.
struct Need {
  uint64_t peak = 0, allocated = 0, reserved = 0, capacity = 0;
  uint64_t outside = 0;       // of the peak, what was not PyTorch's allocator's
  uint64_t outside_peak = 0;  // the most of that, at whatever moment
  uint64_t modelled = 0;      // of the peak, what is neither counted nor documented nor measured
};
Need need_of(const DeviceObservation& device);
int physical_of(const DeviceObservation& device);
// How certain the bytes are that a card was charged under a label: as the table of overheads says, and for
// what the stand-ins work out themselves, modelled.
cards::Certainty certainty_of(const CardView& card, const std::string& label);
const char* certainty_name(cards::Certainty certainty);  // "documented"

// A card and all processes that used it. Its peak is theirs together, at one time. Where they are several,
// `allocated` and `reserved` add up their own peaks, which need not have come at one time: the most that it
// can have been.
struct CardNeed {
  int physical = 0;
  uint64_t processes = 0;
  Need need;
};
std::vector<CardNeed> needs_of(const Rehearsal& rehearsal);
Need largest_need(const Rehearsal& rehearsal);

// What the program read back: values, and how many of those decide a shape; small copies, which it may branch
// on; bulk copies, which are taken as data; numbers that it only printed or calculated with. A decision by
// one of those counts as a value. What only the driver saw, outside PyTorch or before it, is a copy without a
// line.
struct ReadTotals {
  uint64_t shape = 0, value = 0, copy = 0, bulk = 0, number = 0;
  uint64_t copy_without_line = 0, bulk_without_line = 0;  // of those

  bool decide() const { return shape + value + copy > 0; }
};
ReadTotals reads_of(const Observation& process);
ReadTotals reads_of(const Rehearsal& rehearsal);
// Sizes that were taken as the most that they can be, of all processes.
uint64_t assumed_sizes_of(const Rehearsal& rehearsal);
// Launches by kernels that nobody computed, of all processes; only with true values are there any.
std::map<std::string, uint64_t> uncomputed_of(const Rehearsal& rehearsal);
// Whether another run, with other values, may need other memory.
bool is_conditional(const std::string& values, const Rehearsal& rehearsal);

}  // namespace spillway::tools
