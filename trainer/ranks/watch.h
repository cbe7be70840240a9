// Has no rank wait for one that is gone: each says every few moments that it lives, watches the next one and
// the store, and ends when one of them has failed, all with the same incident (incident.h).
//
// Two threads of its own do this. One exchanges texts with the store, over a connection of its own, and may
// be held up there; the other one never waits for anything but the time, and decides. The first incident that
// comes to the store is that of all ranks; where the store is gone each rank keeps its own, with the same
// number.
//
// When there is an incident the training thread meets it at its next `check` and ends by itself. If it does
// not, because it is inside NCCL or Gloo or hangs, the watch has `last_words` said on its own thread; these
// end the process.
//
// Thread-safety: any thread, but for `check`, `lost_connection` and `await_others` to `finish`, which are the
// training thread's (the last two also of the last words). Ownership: the threads keep what they need alive
// and are not waited for longer than a moment. Errors: RanksEnded. Signals: SIGTERM goes on to the handler
// that the program had for it. It is an incident where the rank makes no progress then, as long as this one
// needs the others. From then on it does nothing here: a launcher sends it as soon as another rank has ended,
// and this one may not yet have written what it came to.
#pragma once
#include <atomic>
#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "trainer/ranks/incident.h"
#include "trainer/ranks/judge.h"

namespace spillway::trainer {

// Where the ranks meet. Functions throw where nobody answers.
class WatchStore {
 public:
  virtual ~WatchStore() = default;
  virtual void set(const std::string& key, const std::string& text) = 0;
  virtual std::optional<std::string> get(const std::string& key) = 0;
  // Sets the key unless it is there; what it is then.
  virtual std::string claim(const std::string& key, const std::string& text) = 0;
};

struct WatchSettings {
  Judge::Settings judge;
  std::chrono::milliseconds beat{2000};  // between two exchanges with the store
  std::string number;                    // of an incident
  bool keeps_store = false;              // this process: it stays until the others have read the incident
  std::chrono::milliseconds longest_end{30'000};  // of a training thread that is at its end
};

class Watch {
 public:
  using Connect = std::function<std::unique_ptr<WatchStore>()>;
  using LastWords = std::function<void(const Incident&)>;

  // What a rank says before there is a watch, at "beat/RANK": so its watcher knows its process.
  static std::string first_beat();

  Watch(WatchSettings settings, Connect connect);
  ~Watch();
  Watch(const Watch&) = delete;
  Watch& operator=(const Watch&) = delete;

  const std::string& number() const;
  uint32_t rank() const;
  uint32_t size() const;
  double waited_seconds() const;  // until now
  void when_held_up(LastWords last_words);

  // The training thread begins something; `doing` is a literal.
  void works(const char* doing, uint64_t step, bool may_be_long = false);
  // It moves to another plan, whose steps may take longer.
  void changes_plan(uint64_t step);
  void waits(const char* doing);
  // `is_over`: it goes on with what it was at. Else a GPU waits, and the thread will wait for that.
  void has_waited(std::chrono::microseconds time, bool is_over);
  void check();
  // A sum failed: another rank may be gone. Waits until it is known what has happened, and throws that. After
  // `leave` nobody looks for a cause any more, and it throws what it knows after the bound.
  [[noreturn]] void lost_connection(const std::string& why);
  // From now on this rank needs no other, and ends without an incident.
  void leave();

  std::optional<Incident> incident() const;
  // Who returns true ends the process, and the other side stays out of its way.
  bool begin_end();
  // Waits until each other rank has given a sign of life, or an incident is known, about as long as the
  // bound: before this rank takes a fault for its own that the end of another one may have led to. After
  // `leave` nobody looks for a cause any more.
  void await_others();
  // The fault of `rank`, this one or one for which all end, becomes the incident, unless there is one.
  Incident say_why(const std::string& cause, uint32_t rank);
  // Behind the last words: nothing of the watch runs any more.
  void finish();

 private:
  struct State;
  const std::shared_ptr<State> state_;
};

}  // namespace spillway::trainer
