// What would have served the request that failed, as data: text, JSON and pages print it and decide nothing.
//
// A replay gives the program's requests, up to and including the one that failed, to another allocator or to
// another capacity. It tells whether this request is served. What the program would have asked for next is
// not known.
//
// Thread-safety: `what_would_have_fitted` replays on Spillway's allocator, one call at a time in a process.
// Ownership: texts are their own. Errors: `no_answer` says why there is nothing to say. Units: bytes.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "tools/spillway/history/findings/findings.h"

namespace spillway::tools {

// How it is known, from the surest down.
enum class Sureness : uint8_t {
  kReplayed,    // every request was given again
  kArithmetic,  // bytes of the history are added up
  kEstimate     // they are, and the program may need other bytes then
};
const char* sureness_name(Sureness sure);  // "replayed", "arithmetic", "estimate"

struct Alternative {
  std::string what;          // "expandable segments"
  std::string setting;       // what to type for it; "" where it is no setting
  std::optional<bool> fits;  // whether the request is served then; nothing: not found out
  // Where it fits: what is had by it, or what it takes. Where it does not: how much is still short. `text`
  // says which. Nothing: not found out.
  std::optional<uint64_t> bytes;
  // What the card, or the limit, must have in all, context and other processes included; of more memory,
  // where it is known what those take.
  std::optional<uint64_t> needed;
  std::string text;  // the same in words
  Sureness sure = Sureness::kEstimate;
};

struct Counterfactuals {
  std::vector<Alternative> items;
  std::string no_answer;           // why there are none; "" where there are
  std::vector<std::string> notes;  // what makes them less sure
};

// Of the failure that `found` shows. Ends after `most_ms`, whatever is left then.
Counterfactuals what_would_have_fitted(const MemoryHistory& history, const HistoryFindings& found,
                                       uint64_t most_ms = 5000);

// The section of a report.
std::string counterfactuals_text(const Counterfactuals& fitted);
// An object: the list `counterfactuals`, `no_counterfactuals` (why there are none, or null) and `less_sure`.
// Null: nothing was asked.
std::string counterfactuals_json(const Counterfactuals* fitted);

}  // namespace spillway::tools
