#include "trainer/ranks/watch.h"

#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <condition_variable>

#include "base/mutex.h"
#include "base/process_identity.h"
#include "base/service_thread.h"

namespace spillway::trainer {
namespace {

using std::chrono::milliseconds;
using Clock = std::chrono::steady_clock;

constexpr milliseconds kTick{100};
// For the training thread to end by itself, inside a sum and elsewhere.
constexpr milliseconds kGraceInSum{1000}, kGrace{5000};
constexpr milliseconds kLongestAnswer{2000};  // of the store, about an incident that is known here
constexpr unsigned kLastWordsSeconds = 20;    // a disk that hangs may hold them up too

std::atomic<bool> terminated{false};
static_assert(std::atomic<bool>::is_always_lock_free);

// The program's own handler has the run end after its step.
std::atomic<void (*)(int)> handler_before{nullptr};

void on_sigterm(int signal) {
  terminated = true;
  if (void (*const before)(int) = handler_before) before(signal);
}

void listen_for_sigterm() {
  terminated = false;
  struct sigaction take{}, before{};
  take.sa_handler = on_sigterm;
  take.sa_flags = SA_RESTART;
  ::sigaction(SIGTERM, nullptr, &before);
  const bool is_handler = before.sa_handler != SIG_DFL && before.sa_handler != SIG_IGN;
  if (before.sa_handler != on_sigterm) handler_before = is_handler ? before.sa_handler : nullptr;
  ::sigaction(SIGTERM, &take, nullptr);
}

std::string key_of(const char* what, uint32_t rank) {
  return what + std::to_string(rank);
}

Beat beat_of_this_process() {
  static const std::string machine = this_machine();
  static const ProcessIdentity process = this_process();
  Beat beat;
  beat.doing = "starting";
  beat.machine = machine;
  beat.process = process.id;
  beat.process_start = process.start;
  return beat;
}

}  // namespace

// What the threads share.
struct Watch::State : std::enable_shared_from_this<Watch::State> {
  State(WatchSettings given, Connect connect_given)
      : settings(std::move(given)), connect(std::move(connect_given)), judge(settings.judge) {}

  const WatchSettings settings;
  const Connect connect;
  Judge judge;  // the guard's

  // Where the training thread is.
  std::atomic<uint64_t> marks{0}, step{0}, plans{0};
  std::atomic<const char*> doing{"starting"}, before_wait{"starting"};
  std::atomic<bool> waits{false}, may_be_long{true}, leaving{false}, knows{false};
  std::atomic<bool> in_wait{false};  // inside the call itself
  std::atomic<int64_t> quiet_ms{0}, waited_us{0};
  std::atomic<bool> overdue{false}, asks_others{false};

  Mutex<LockOrder::kLeaf> mutex;
  std::condition_variable_any changed, poked;
  Observed observed SPILLWAY_GUARDED_BY(mutex);
  std::optional<Incident> incident SPILLWAY_GUARDED_BY(mutex), claim SPILLWAY_GUARDED_BY(mutex);
  LastWords last_words SPILLWAY_GUARDED_BY(mutex);
  bool ending SPILLWAY_GUARDED_BY(mutex) = false, stopped SPILLWAY_GUARDED_BY(mutex) = false;
  bool poke SPILLWAY_GUARDED_BY(mutex) = false, wants_all SPILLWAY_GUARDED_BY(mutex) = false;
  bool left_is_said SPILLWAY_GUARDED_BY(mutex) = false, all_know SPILLWAY_GUARDED_BY(mutex) = false;
  bool exchange_ended SPILLWAY_GUARDED_BY(mutex) = false, guard_ended SPILLWAY_GUARDED_BY(mutex) = false;

  // The thread of the store.
  uint64_t beats = 0;
  std::unique_ptr<WatchStore> store;

  void exchange_until_stopped();
  void exchange();
  Beat own_beat();
  std::optional<Beat> beat_in_store(uint32_t rank);
  void talk_about_incident(const std::optional<Incident>& mine, bool known);

  // The guard.
  void guard_until_stopped();
  void look(milliseconds passed);
  void end_if_held_up(milliseconds since);
  Observed snapshot();

  void decide(Incident what);
  void ask_store();
  bool await(milliseconds most, const std::function<bool(State&)>& done);
};

Beat Watch::State::own_beat() {
  Beat beat = beat_of_this_process();
  beat.count = ++beats;
  beat.step = step;
  beat.doing = doing.load();
  beat.waits = waits;
  beat.quiet_seconds = double(quiet_ms) / 1000;
  beat.overdue = overdue;
  beat.left = leaving;
  return beat;
}

std::optional<Beat> Watch::State::beat_in_store(uint32_t rank) {
  const auto text = store->get(key_of("beat/", rank));
  return text ? beat_of(*text) : std::nullopt;
}

// The rank that keeps the store learns who has read the incident.
void Watch::State::talk_about_incident(const std::optional<Incident>& mine, bool known) {
  const auto text = mine ? store->claim("incident", to_json_text(*mine)) : store->get("incident");
  const std::optional<Incident> found = text ? incident_of(*text) : std::nullopt;
  if (!found) return;
  store->set(key_of("knows/", settings.judge.rank), "yes");
  if (!known) decide(*found);
  if (!settings.keeps_store) return;
  bool all = true;
  for (uint32_t rank = 0; rank < settings.judge.size && all; ++rank)
    all = rank == found->rank || store->get(key_of("knows/", rank)).has_value();
  const Locked lock(mutex);
  all_know = all;
  changed.notify_all();
}

// The beats first: who is gone has said before why.
void Watch::State::exchange() {
  std::optional<Incident> mine;
  bool known = false, all = false;
  {
    const Locked lock(mutex);
    known = incident.has_value();
    mine = known ? incident : claim;
    all = wants_all;
  }
  if (!store) store = connect();
  const Beat own = own_beat();
  store->set(key_of("beat/", settings.judge.rank), to_text(own));
  const std::optional<Beat> next = beat_in_store(judge.watched());
  const std::optional<Beat> keeper = settings.judge.rank_0_keeps_store ? beat_in_store(0) : std::nullopt;
  std::vector<Beat> everybody;
  for (uint32_t rank = 0; all && rank < settings.judge.size; ++rank)
    if (const auto beat = beat_in_store(rank)) everybody.push_back(*beat);
  talk_about_incident(mine, known);
  const Locked lock(mutex);
  observed.next = next;
  if (keeper) observed.keeper = keeper;
  observed.all = std::move(everybody);
  ++observed.exchanges;
  observed.store_fails = false;
  left_is_said = own.left;
  changed.notify_all();
}

void Watch::State::exchange_until_stopped() {
  while (true) {
    std::string error;
    try {
      exchange();
    } catch (const std::exception& failed) {
      error = failed.what();
      store.reset();
    }
    const Locked lock(mutex);
    if (!error.empty()) {
      observed.store_fails = true;
      observed.store_error = error.substr(0, error.find('\n'));
    }
    const auto until = Clock::now() + (error.empty() ? settings.beat : std::min(settings.beat, 5 * kTick));
    while (!poke && !stopped && Clock::now() < until) poked.wait_until(mutex, until);
    poke = false;
    if (stopped) break;
  }
  store.reset();
  const Locked lock(mutex);
  exchange_ended = true;
  changed.notify_all();
}

void Watch::State::ask_store() {
  const Locked lock(mutex);
  poke = true;
  poked.notify_all();
}

void Watch::State::decide(Incident what) {
  const Locked lock(mutex);
  if (!incident) incident = std::move(what);
  changed.notify_all();
}

Observed Watch::State::snapshot() {
  const Locked lock(mutex);
  Observed now = observed;
  now.own = {.marks = marks,
             .step = step,
             .doing = doing,
             .waits = waits,
             .may_be_long = may_be_long,
             .plans = plans};
  now.terminated = terminated;
  return now;
}

void Watch::State::look(milliseconds passed) {
  const std::optional<Suspicion> found = judge.look(passed, snapshot());
  quiet_ms = judge.quiet().count();
  overdue = judge.overdue();
  {
    const Locked lock(mutex);
    wants_all = judge.asks_all() || asks_others;
    if (found && !claim)
      claim = Incident{.number = settings.number, .rank = found->rank, .cause = found->cause};
  }
  if (judge.in_doubt() || found) ask_store();
}

void Watch::State::end_if_held_up(milliseconds since) {
  LastWords words;
  std::optional<Incident> what;
  {
    const Locked lock(mutex);
    const milliseconds grace = ending || knows ? settings.longest_end : waits ? kGraceInSum : kGrace;
    if (since <= grace || stopped || !last_words) return;
    if (ending) ::_exit(kExitOfIncident);  // the training thread has begun to end, and hangs in that
    ending = true;
    words = last_words;
    what = incident;
  }
  ::alarm(kLastWordsSeconds);
  if (what) words(*what);
}

void Watch::State::guard_until_stopped() {
  Clock::time_point last = Clock::now();
  milliseconds claimed{0}, decided{0};
  while (true) {
    const Clock::time_point now = Clock::now();
    const auto passed = std::chrono::duration_cast<milliseconds>(now - last);
    last = now;
    std::optional<Incident> known, mine;
    {
      const Locked lock(mutex);
      known = incident, mine = claim;
    }
    if (known) {
      end_if_held_up(decided += std::min(passed, kGraceInSum));
    } else if (mine) {
      // Where the store does not answer, each rank keeps what it has seen itself.
      claimed += passed;
      if (claimed > kLongestAnswer) decide(*mine);
    } else if (!leaving) {
      look(passed);
    }
    const Locked lock(mutex);
    const auto until = now + kTick;
    while (!stopped && Clock::now() < until) changed.wait_until(mutex, until);
    if (stopped) break;
  }
  const Locked lock(mutex);
  guard_ended = true;
  changed.notify_all();
}

// False: the time is over.
bool Watch::State::await(milliseconds most, const std::function<bool(State&)>& done) {
  const auto until = Clock::now() + most;
  const Locked lock(mutex);
  while (!done(*this) && Clock::now() < until) changed.wait_until(mutex, until);
  return done(*this);
}

Watch::Watch(WatchSettings settings, Connect connect)
    : state_(std::make_shared<State>(std::move(settings), std::move(connect))) {
  listen_for_sigterm();
  start_service_thread([state = state_] { state->exchange_until_stopped(); });
  start_service_thread([state = state_] { state->guard_until_stopped(); });
}

std::string Watch::first_beat() {
  return to_text(beat_of_this_process());
}

Watch::~Watch() {
  finish();
}

const std::string& Watch::number() const {
  return state_->settings.number;
}

uint32_t Watch::rank() const {
  return state_->settings.judge.rank;
}

uint32_t Watch::size() const {
  return state_->settings.judge.size;
}

// With the wait that it is in.
double Watch::waited_seconds() const {
  const double now = state_->in_wait ? double(state_->quiet_ms) / 1e3 : 0;
  return double(state_->waited_us) / 1e6 + now;
}

void Watch::has_waited(std::chrono::microseconds time, bool is_over) {
  state_->waited_us += time.count();
  state_->in_wait = false;
  if (!is_over) return;
  state_->doing = state_->before_wait.load();
  state_->waits = false;
  ++state_->marks;
}

void Watch::when_held_up(LastWords last_words) {
  const Locked lock(state_->mutex);
  state_->last_words = std::move(last_words);
}

void Watch::works(const char* doing, uint64_t step, bool may_be_long) {
  state_->step = step;
  state_->doing = doing;
  state_->may_be_long = may_be_long;
  state_->waits = false;
  ++state_->marks;
}

void Watch::changes_plan(uint64_t step) {
  ++state_->plans;
  works("plan", step, true);
}

void Watch::waits(const char* doing) {
  if (!state_->waits) state_->before_wait = state_->doing.load();
  state_->doing = doing;
  state_->waits = true;
  state_->in_wait = true;
  ++state_->marks;
}

void Watch::check() {
  const auto known = incident();
  if (!known) return;
  state_->knows = true;
  throw RanksEnded(*known);
}

void Watch::lost_connection(const std::string& why) {
  {
    const Locked lock(state_->mutex);
    state_->observed.lost = why.substr(0, why.find('\n'));
  }
  state_->knows = true;
  while (true) {
    const bool looks = !state_->leaving;
    state_->await(looks ? milliseconds(std::chrono::hours(1)) : state_->settings.judge.bound,
                  [](State& it) SPILLWAY_REQUIRES(it.mutex) { return it.incident.has_value(); });
    check();
    if (!looks) throw RanksEnded(say_why("lost its connection to other ranks at the end: " + why, rank()));
  }
}

void Watch::leave() {
  if (state_->leaving.exchange(true)) return;
  state_->ask_store();
  state_->await(kLongestAnswer, [](State& it) SPILLWAY_REQUIRES(it.mutex) { return it.left_is_said; });
}

std::optional<Incident> Watch::incident() const {
  const Locked lock(state_->mutex);
  return state_->incident;
}

bool Watch::begin_end() {
  const Locked lock(state_->mutex);
  return !std::exchange(state_->ending, true);
}

// The judge learns of a silence at an exchange behind the bound; another rank's judge tells it by the store.
void Watch::await_others() {
  if (state_->leaving) return;
  waits("a sign of life of the other ranks");
  const milliseconds most = state_->settings.judge.bound + 3 * state_->settings.beat + kLongestAnswer;
  std::vector<Beat> first;
  {
    const Locked lock(state_->mutex);
    state_->observed.all.clear();
    state_->asks_others = true;
  }
  state_->await(most, [&](State& it) SPILLWAY_REQUIRES(it.mutex) {
    const std::vector<Beat>& now = it.observed.all;
    if (it.incident) return true;
    if (now.size() != it.settings.judge.size) return false;
    if (first.empty()) first = now;
    for (uint32_t rank = 0; rank < now.size(); ++rank)
      if (rank != it.settings.judge.rank && !now[rank].left && now[rank].count <= first[rank].count)
        return false;
    return true;
  });
}

Incident Watch::say_why(const std::string& cause, uint32_t rank) {
  const Incident mine{.number = number(), .rank = rank, .cause = cause};
  state_->knows = true;
  {
    const Locked lock(state_->mutex);
    if (!state_->claim) state_->claim = mine;
  }
  state_->ask_store();
  state_->await(2 * kLongestAnswer,
                [](State& it) SPILLWAY_REQUIRES(it.mutex) { return it.incident.has_value(); });
  return incident().value_or(mine);
}

void Watch::finish() {
  const bool tells = state_->settings.keeps_store && incident().has_value();
  if (tells) {
    const milliseconds longest = 2 * state_->settings.beat + kLongestAnswer;
    const auto until = Clock::now() + longest;
    while (Clock::now() < until &&
           !state_->await(kTick, [](State& it) SPILLWAY_REQUIRES(it.mutex) { return it.all_know; }))
      state_->ask_store();
  }
  {
    const Locked lock(state_->mutex);
    if (std::exchange(state_->stopped, true)) return;
    state_->poked.notify_all();
    state_->changed.notify_all();
  }
  state_->await(std::chrono::seconds(1),
                [](State& it) SPILLWAY_REQUIRES(it.mutex) { return it.exchange_ended; });
}

}  // namespace spillway::trainer
