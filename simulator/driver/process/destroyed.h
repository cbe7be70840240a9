// Handles of streams, events and contexts that the program has destroyed. A real driver takes a handle for a
// pointer and crashes when it is used again; by default the simulated one answers that it is invalid.
//
// Thread-safety: none of its own; used under the simulator's lock. Ownership: of the destroyed objects where
// using them crashes, so that no later one gets the same handle. Errors: none.
#pragma once
#include <memory>
#include <unordered_map>

#include "simulator/driver/process/referee.h"

namespace spillway::simulator {

class DestroyedHandles {
 public:
  // `object`: what the handle points to, or nothing where it stays anyway.
  void note(const void* handle, const char* kind, Site site, std::shared_ptr<void> object = nullptr);
  // Ends the process with a report if `handle` is a destroyed one; `call` is the function that was given it.
  void check(const void* handle, const char* call, Site site) const;

 private:
  struct Destroyed {
    const char* kind;
    Site site;
    std::shared_ptr<void> object;
  };
  std::unordered_map<const void*, Destroyed> handles_;
};

}  // namespace spillway::simulator
