// Decides, from what a rank sees of itself, of the next rank and of the store, that a rank has failed.
//
// Each rank watches the next one, the last rank the first; so each is watched by one that lives or whose own
// end is noticed. Time counts only while this process runs: one that was stopped, and goes on, accuses nobody
// of the time that it has missed.
//
// Thread-safety: one thread. Errors: none. It reads no clock: `look` is told how much time has passed.
#pragma once
#include <array>
#include <chrono>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "trainer/ranks/beat.h"

namespace spillway::trainer {

// What the training thread is at.
struct Activity {
  uint64_t marks = 0;  // changes with each thing that it begins
  uint64_t step = 0;
  const char* doing = "starting";
  bool waits = false;
  bool may_be_long = true;  // a checkpoint, a move: no measure, and no hang
  uint64_t plans = 0;       // changes with each move to another plan
};

struct Observed {
  Activity own;
  std::optional<Beat> next, keeper;  // the watched rank's, and rank 0's if it keeps the store
  std::vector<Beat> all;             // of all ranks, where `asks_all`
  uint64_t exchanges = 0;            // with the store, that came to their end
  bool store_fails = false;          // the last one did not
  std::string store_error;
  std::string lost;         // what a sum said when it failed; "": none did
  bool terminated = false;  // SIGTERM
};

struct Suspicion {
  int64_t rank = -1;
  std::string cause;
};

class Judge {
 public:
  using Milliseconds = std::chrono::milliseconds;
  struct Settings {
    uint32_t rank = 0, size = 1;
    std::string store;  // where it is
    bool rank_0_keeps_store = false;
    Milliseconds bound{60'000};     // without a sign of life
    Milliseconds longest{600'000};  // of what may be long
  };
  using Look = std::function<ProcessSeen(const Beat&)>;

  explicit Judge(Settings settings, Look look = look_at);

  uint32_t watched() const { return (settings_.rank + 1) % settings_.size; }
  std::optional<Suspicion> look(Milliseconds passed, const Observed& now);
  // An exchange with the store now would tell more.
  bool in_doubt() const { return in_doubt_; }
  // Whether the beats of all ranks are needed: rank 0 has waited long, and so may all.
  bool asks_all() const { return settings_.rank == 0 && overdue_ && own_waits_; }
  Milliseconds quiet() const { return quiet_; }
  bool overdue() const { return overdue_; }

 private:
  void follow(Milliseconds passed, const Activity& own);
  Milliseconds patience(const Activity& own) const;
  std::optional<Suspicion> own_hang(const Observed& now) const;
  std::optional<Suspicion> hang_of_all(const Observed& now) const;
  void follow_next(Milliseconds passed, const Observed& now);
  std::optional<Suspicion> next_rank(Milliseconds passed, const Observed& now);
  std::optional<Suspicion> store(Milliseconds passed, const Observed& now);
  std::optional<Suspicion> lost_or_ended(Milliseconds passed, const Observed& now);
  Suspicion of(uint32_t rank, const std::string& what) const;

  const Settings settings_;
  const Look look_;
  bool in_doubt_ = false;
  // Of this rank: since its last mark, and the longest such time of work and of waiting, in a plan's first
  // step and in others.
  Activity last_;
  bool own_waits_ = false, overdue_ = false;
  std::optional<uint64_t> first_step_;
  Milliseconds quiet_{0};
  std::array<Milliseconds, 2> longest_at_first_{}, longest_{};
  // Of the next one.
  uint64_t next_count_ = 0, answers_ = 0;
  Milliseconds next_silent_{0}, since_answer_{0};
  std::optional<uint64_t> gone_at_;  // exchanges when its process was missed first
  // Of the store.
  uint64_t exchanges_ = 0;
  Milliseconds store_silent_{0};
  Milliseconds lost_for_{0}, terminated_for_{0};
};

}  // namespace spillway::trainer
