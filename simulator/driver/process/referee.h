// Finds and words what a program does wrong: memory taken away from work in flight, access without permission
// or to nothing, double release. Each report has the call site of both parties.
//
// Thread-safety: none of its own; used under the simulator's lock. Ownership: texts are the referee's.
// Errors: none.
#pragma once
#include <cstdint>
#include <string>
#include <unordered_set>
#include <vector>

namespace spillway::simulator {

using Site = const void*;  // the return address of a driver call

// "function+0x1f (library.so+0x12345)".
std::string describe_site(Site site);
std::string describe_range(uint64_t address, uint64_t bytes);

// The work that last touched a piece of memory and when it is done with it.
struct Use {
  uint64_t end = 0;
  uint64_t stream = 0;
  const char* name = nullptr;  // interned
  Site site = nullptr;
};

class Referee {
 public:
  enum class Went { kReleased, kUnmapped, kFreed };

  void violation(const std::string& text);
  // Where the graph's work was captured that the next violations are of; null for none.
  void set_captured_at(Site site) { captured_at_ = site; }
  // `what` was taken away while `use` still ran.
  void in_flight(const std::string& what, Site site, const Use& use, uint64_t now);
  // Remembers the last few thousand things that went, to name who took them away.
  void went(Went how, uint64_t address, uint64_t bytes, Site site);
  // "; released at ..." of what was last at [address, address + bytes), or "".
  std::string who_took(uint64_t address, uint64_t bytes) const;
  std::string who_released(uint64_t handle) const;

  const char* intern(const char* name);
  uint64_t count() const { return count_; }
  const std::string& text() const { return text_; }
  void reset();

 private:
  struct Gone {
    Went how;
    uint64_t address, bytes;
    Site site;
  };
  std::vector<Gone> gone_;  // a ring
  size_t next_gone_ = 0;
  std::unordered_set<std::string> names_;
  std::string text_;
  Site captured_at_ = nullptr;
  uint64_t count_ = 0;
};

}  // namespace spillway::simulator
