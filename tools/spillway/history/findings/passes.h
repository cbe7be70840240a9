// How often the program came round in the loop in which a request failed, as the stacks of its allocations
// show it: within one function, called from one place, a pass begins where an earlier line asks again than
// the one that asked last.
//
// A loop over layers looks like a loop over batches. So only loops count that call a model and are in none:
// a frame named `forward`, or PyTorch's call of a module, must lie inside. What makes a model, or an
// optimizer's states, calls none.
//
// Thread-safety: pure functions. Errors: none; without stacks there are no passes.
#pragma once
#include <cstddef>
#include <string>
#include <vector>

#include "tools/spillway/history/history.h"

namespace spillway::tools {

struct Passes {
  std::vector<size_t> starts;  // before which event each began; empty: no loop is seen
  std::string where;           // the line of the loop that led to the request: "train.py:30 main"
  std::vector<bool> has;       // by stack: whether it is in the loop, and in a model that it calls

  // To tell what grows from what is made once.
  bool are_enough() const { return starts.size() >= 5; }
};

// Of the outermost loop around the request that failed, event `failure` of the device, that went round often
// enough, or else of that which went round most often.
Passes passes_before(const MemoryHistory& history, int device, size_t failure);

}  // namespace spillway::tools
