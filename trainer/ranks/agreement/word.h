// What ranks say to each other when one of them runs out of memory in a step that the others are in as well,
// and what follows from it: all of them undo the step and make it anew, or all of them end.
//
// Each rank says its word, rank 0 makes the decision of all words, and all have the same decision. They adopt
// what was decided and say that they are ready; when all are, the step begins anew. A rank that has no room
// for it asks once more.
//
// Thread-safety: values and pure functions. Errors: a text that is no word, or no decision, gives nothing;
// std::logic_error for words of different steps.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "trainer/plan/plan.h"
#include "trainer/plan/ranks/same_sequence.h"

namespace spillway::trainer {

struct Word {
  enum class Says : uint8_t {
    kFollows,  // it has met no failure
    kAsks,     // it goes on with `plan`, when all have undone the step
    kGivesUp,  // it has no plan left
    kIsReady   // it has what was decided
  };
  uint32_t rank = 0;
  uint64_t step = 0;
  uint32_t attempt = 0;  // of this step, that would be its next one
  Says says = Says::kFollows;
  Plan before{}, plan{};  // of its move; the same where it made none
  Guarantee guarantee = Guarantee::kBitExact;
  std::string action{}, phase{}, reason{};  // as in RecoveryRecord
  uint64_t incident = 0;

  bool operator==(const Word&) const = default;
};

struct Decision {
  enum class What : uint8_t {
    kAdopt,  // all adopt what is common and speak again
    kReplay,
    kGiveUp
  };
  What what = What::kAdopt;
  uint32_t attempt = 0;       // of all ranks, from now on
  Plan joined{};              // that every rank can follow
  std::vector<Word> asked{};  // by the ranks that met a failure, in their order
  // Of kGiveUp: the first rank that has nothing left, and what.
  uint32_t ended_by = 0;
  std::string why_it_ends{};

  bool operator==(const Decision&) const = default;
};

// Of a failure for which all ranks undid a step, for the reports of all of them.
struct AskedUndo {
  uint32_t rank = 0;
  bool is_this_rank = false;
  uint32_t attempt = 0;  // that all began then
  Guarantee guarantee{};
  Plan before, after;         // of that rank
  std::string why_all_end{};  // "": all begin the step anew
};

// Of the words of all ranks, in any order. `attempts`: of a step, that are made at most.
Decision decide(const std::vector<Word>& words, uint32_t attempts);

// Of a step that is given up before its attempt `next`.
std::string why_a_step_ends(uint32_t next, uint32_t attempts);

// What a rank adopts of the joined plan: what the order follows from in which ranks exchange things. The rest
// of its plan is its own.
Plan common_plan(const Plan& own, const Plan& joined, const SharedWork& work);

std::string to_text(const Word& word);
std::string to_text(const Decision& decision);
// Of a model with so many layers.
std::optional<Word> word_of(const std::string& text, uint32_t layers);
std::optional<Decision> decision_of(const std::string& text, uint32_t layers);

}  // namespace spillway::trainer
