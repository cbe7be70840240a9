// The ladder: strategies in order of cost, run for a request that could not be served, until it can.
//
// Thread-safety: every member may be called from any thread; `handle` runs once at a time per device (the
// allocator sees to that) and holds no lock while a strategy works. Ownership: built-in strategies belong to
// the ladder; the allocator must outlive it. Errors: none; an incident ends as granted, unwind or give up.
// Units: bytes, microseconds.
#pragma once
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "allocator/allocator.h"
#include "allocator/request/strategy.h"
#include "allocator/tiers/gate.h"
#include "base/backoff.h"
#include "base/mutex.h"
#include "processes/ledger.h"

namespace spillway {

enum class StrategyId : uint64_t { kNone = 0 };

struct StrategyCounts {
  std::string name;
  Guarantee guarantee = Guarantee::kBitExact;
  uint64_t tried = 0, useful = 0, bytes = 0, microseconds = 0;
};

// An incident that has ended.
struct IncidentSummary {
  uint64_t incident = 0;  // 0: there was none
  uint64_t requested_bytes = 0, gained_bytes = 0, microseconds = 0;
  LadderOutcome outcome = LadderOutcome::kGiveUp;
  std::chrono::steady_clock::time_point ended;
  std::string story;  // what was tried, one line
};

struct LadderOptions {
  unsigned most_steps = 32;                    // in one incident
  std::chrono::milliseconds most_time{20000};  // no step is begun later
  unsigned useless_until_broken = 8;           // incidents in a row that a strategy did not save
};

class Ladder final : public OomHandler {
 public:
  explicit Ladder(Allocator& allocator, LadderOptions options = {});
  ~Ladder() override;

  StrategyId add(std::unique_ptr<Strategy> strategy);
  // Waits until running calls of the strategy have returned. False for an unknown id, or from inside a
  // strategy.
  bool remove(StrategyId id);
  void allow(Guarantee weakest) noexcept { allowed_.store(weakest); }
  // What strategies that need a gate get; it must outlive the ladder. Null: they are not run.
  void set_gate(Gate* gate) noexcept { gate_.store(gate); }
  Gate* gate() const noexcept { return gate_.load(); }
  // The phase that incidents are labelled with; the text must live for ever.
  void set_phase_source(const char* (*source)()) noexcept { phase_source_.store(source); }
  // An optimizer of the program begins a step; incidents tell how many have. Returns that number, with it.
  uint64_t note_optimizer_step() noexcept { return ++optimizer_steps_; }
  std::vector<StrategyCounts> counts();

  // The plan move that the last unwind of this thread chose, or where that was taken or there was none, of
  // another thread's since then; taken, with what that thread's earlier unwinds chose. kNone: none.
  StrategyId take_chosen_move(uint64_t* incident);
  // The move of one incident, not taken.
  StrategyId move_of(uint64_t incident);
  // What was tried for an incident, one line; "" when it is no longer known.
  std::string story_of(uint64_t incident);
  IncidentSummary last_incident();
  // Whether a strategy is running on this thread.
  static bool inside() noexcept;

  LadderOutcome handle(PendingRequest& request) noexcept override;
  // An incident for which there is nothing to try: it is given up.
  void note(PendingRequest& request) noexcept;
  bool at_rest(const std::function<void()>& work,
               std::chrono::steady_clock::time_point deadline) noexcept override;

 private:
  struct Entry;
  struct Candidate;
  struct Round;
  struct Incident;
  using Entries = std::vector<std::shared_ptr<Entry>>;

  LadderOutcome climb(Incident& incident);
  Candidate choose(Incident& incident, const Round& round, bool plan_moves);
  bool can_run(const StrategyInfo& info, const OomEvent& event, bool plan_moves) const;
  Relief run(const Candidate& candidate, Incident& incident);
  Relief relieve(Entry& entry, PendingRequest& request);
  void say_slow_once(const Entry& entry, const Offer& offer);
  bool enter(Entry& entry);
  void leave(Entry& entry);
  Entries entries();
  bool is_broken(const Entry& entry) const;
  void settle(const Incident& incident, LadderOutcome outcome);

  Allocator& allocator_;
  const LadderOptions options_;
  std::atomic<Guarantee> allowed_{Guarantee::kStatisticsChange};
  std::atomic<const char* (*)()> phase_source_{nullptr};
  std::atomic<uint64_t> optimizer_steps_{0};
  std::atomic<Gate*> gate_{nullptr};
  std::atomic<bool> said_slow_{false};
  Mutex<LockOrder::kStrategies> mutex_;
  std::condition_variable_any idle_;
  Entries entries_ SPILLWAY_GUARDED_BY(mutex_);
  uint64_t next_id_ SPILLWAY_GUARDED_BY(mutex_) = 1;
  struct Settled {
    uint64_t order, incident;
    size_t thread;
    bool unwound;
    StrategyId move;  // until it is taken
    std::string story;
  };
  Settled* find_chosen_move() SPILLWAY_REQUIRES(mutex_);
  std::vector<Settled> settled_ SPILLWAY_GUARDED_BY(mutex_);  // the latest, oldest first
  IncidentSummary last_ SPILLWAY_GUARDED_BY(mutex_);
};

// The strategies that work in place. `allocator` must outlive them.
std::unique_ptr<Strategy> make_wait_for_events();
std::unique_ptr<Strategy> make_stitch();
std::unique_ptr<Strategy> make_divide_handles();
std::unique_ptr<Strategy> make_release_cache(Allocator& allocator);
// What may be moved off the devices of this process.
struct SpillLimits {
  uint64_t host_bytes = 0;            // pinned host memory, of all devices together
  uint64_t (*available)() = nullptr;  // what the machine could still give of it; null: does not matter
  // On each other device, of all devices' blocks together. Nothing: of those that nobody uses, a part.
  std::optional<uint64_t> peer_bytes{};
  // Whether no other process is known to use a device; null: it may.
  bool (*nobody_uses)(const DeviceUuid&) = nullptr;
  // By which a peer that refused is tried again.
  Backoff::Now now = &std::chrono::steady_clock::now;
  double most_slowdown = 0;  // predicted time of a step ÷ that without what is spilled; 0: does not matter
};
std::unique_ptr<Strategy> make_spill_to_host(Allocator& allocator, const SpillLimits& limits);
// `show`: called when the first blocks lie on a peer, whose users are told of nobody there yet.
std::unique_ptr<Strategy> make_spill_to_peer(Allocator& allocator, const SpillLimits& limits,
                                             void (*show)() = nullptr);
// Of registered blocks, to the file that `use_page_file` named.
std::unique_ptr<Strategy> make_spill_to_nvme(Allocator& allocator, const SpillLimits& limits);
// Makes room on a device that others' blocks were moved to.
std::unique_ptr<Strategy> make_evict_guests(Allocator& allocator, const SpillLimits& limits);
std::unique_ptr<Strategy> make_framework_cache(Allocator& allocator);
std::unique_ptr<Strategy> make_trim_pools(Allocator& allocator);
// `ledger` gives the process's ledger, null while it is in none. `now`: by which those are believed again
// that did not give what they showed.
std::unique_ptr<Strategy> make_ask_processes(Allocator& allocator, Ledger* (*ledger)(),
                                             Backoff::Now now = &std::chrono::steady_clock::now);

}  // namespace spillway
