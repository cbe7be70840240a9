// The stacks of a snapshot, each once.
//
// Thread-safety: one thread. Ownership: the history's frames are views of the Pickle's texts.
#pragma once
#include <optional>
#include <unordered_map>
#include <vector>

#include "tools/spillway/history/history.h"
#include "tools/spillway/snapshot/pickle/pickle.h"

namespace spillway::tools {

class Stacks {
 public:
  explicit Stacks(MemoryHistory* out) : out_(*out) {}

  // `frames`: a list, or nothing. Ids from `first` on mean something else in a later call.
  StackId of(const Pickle& pickle, std::optional<Pickle::Id> frames, Pickle::Id first);

 private:
  StackId add(std::vector<StackFrame> frames);

  MemoryHistory& out_;
  // By the frames' ids, which a file shares where it does not share the list: hash → list, stack.
  struct Known {
    std::vector<Pickle::Id> frames;
    StackId stack;
  };
  std::unordered_map<uint64_t, std::vector<Known>> by_ids_;
  std::unordered_map<size_t, std::vector<StackId>> by_content_;
};

}  // namespace spillway::tools
