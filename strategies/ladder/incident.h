// One run of the ladder: its bounds, its records, its story for the one-line verdict.
//
// Thread-safety: lives on the stack of the thread whose request failed. Errors: none.
#pragma once
#include <atomic>
#include <chrono>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "strategies/ladder/ladder.h"

namespace spillway {

inline uint64_t microseconds_since(std::chrono::steady_clock::time_point start) {
  const auto elapsed = std::chrono::steady_clock::now() - start;
  return static_cast<uint64_t>(std::chrono::duration_cast<std::chrono::microseconds>(elapsed).count());
}

struct Ladder::Entry {
  StrategyId id{};
  std::string name;
  StrategyInfo info;
  std::unique_ptr<Strategy> strategy;
  std::atomic<uint64_t> tried{0}, useful{0}, bytes{0}, microseconds{0};
  std::atomic<unsigned> useless{0};  // incidents in a row that it did not save
  unsigned running = 0;              // these two are guarded by the ladder's mutex
  bool removed = false;
};

struct Ladder::Candidate {
  std::shared_ptr<Entry> entry;
  Offer offer;
  uint64_t unit_cost = 0;
};

// Which strategies are asked now, of those that work in place and of the plan moves.
struct Ladder::Round {
  bool broken = false;  // that have failed again and again, else the others
  bool slow = false;    // also what would make the program slower than its user wants
};

struct Ladder::Incident {
  Incident(Allocator& allocator, PendingRequest& request, const LadderOptions& options);

  void open(uint64_t optimizer_steps);  // how many have begun
  bool may_step() const;
  void step(Entry& entry, const Offer& offer, const Relief& relief, uint64_t us);
  // Kept until the end: what is refused now may be possible after another step. Why a run failed stays.
  void refusal(const Entry& entry, const char* why);
  // It runs after all.
  void no_refusal(const Entry& entry) { refusals_.erase(entry.name); }
  void close(LadderOutcome outcome);
  // It gained nothing: it is passed over until something else has, or until it gets its second chance.
  void failed(const Entry& entry, bool counted);
  bool is_exhausted(StrategyId id) const;
  // Something was gained: what counted its bytes and failed before may find them now.
  void forgive_after_progress();
  // Lets those have another chance that counted their bytes and failed once since anything was gained. False:
  // there are none.
  bool give_second_chances();
  uint64_t gained() const { return gained_; }
  uint64_t microseconds() const { return microseconds_since(start_); }

  PendingRequest& request;
  const OomEvent& event;  // the request's
  std::vector<std::shared_ptr<Entry>> used;
  StrategyId move = StrategyId::kNone;
  std::string story;

 private:
  void record(trace::Kind kind, uint64_t address, uint64_t bytes, uint64_t requested, uint64_t detail,
              uint8_t flags = 0);
  void record_equation();
  void record_refusals();
  void record_holders();
  void record_course();
  void record_neighbours(std::chrono::milliseconds most = {});
  void record_term(trace::Term which, uint64_t bytes);

  Allocator& allocator_;
  const LadderOptions& options_;
  std::chrono::steady_clock::time_point start_;
  unsigned steps_ = 0;
  uint64_t gained_ = 0;
  struct Exhausted {
    StrategyId id;
    unsigned runs;  // in which it gained nothing, since anything was gained
    bool counted, passed_over;
  };
  std::vector<Exhausted> exhausted_;
  struct Outside {
    uint64_t context, others;
  };
  std::optional<Outside> outside_;  // as the equation has it
  bool knows_neighbours_ = false;
  std::map<std::string, std::string> refusals_;  // strategy → why
};

}  // namespace spillway
