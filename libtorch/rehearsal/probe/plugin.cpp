// What the simulated runtime and the Python part enter. The runtime loads this library into a program that
// uses LibTorch (SPILLWAY_SIM_PLUGINS).
#include <c10/util/Exception.h>
#include <pthread.h>

#include <chrono>
#include <condition_variable>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <string>
#include <thread>

#include "base/mutex.h"
#include "base/this_library.h"
#include "libtorch/plugin/shim.h"
#include "libtorch/rehearsal/history.h"
#include "libtorch/rehearsal/probe/chance.h"
#include "libtorch/rehearsal/probe/python.h"
#include "libtorch/rehearsal/probe/reads.h"
#include "libtorch/rehearsal/probe/simulator.h"
#include "libtorch/rehearsal/probe/stream.h"
#include "libtorch/rehearsal/probe/watch.h"
#include "libtorch/rehearsal/result.h"
#include "libtorch/rehearsal/settings.h"
#include "libtorch/rehearsal/state.h"

namespace spillway::rehearsal {
namespace {

constexpr int kInstalled = 0, kFailed = 1, kLater = -1;

// Writes the result every second while the program changes it: a program that is killed leaves all but the
// last second. Takes no GIL, so that it can be joined with the GIL held.
class Writer {
 public:
  void start() {
    thread_ = std::thread([this] { run(); });
  }
  void stop() {
    {
      const Locked lock(mutex_);
      if (stopping_) return;
      stopping_ = true;
    }
    wake_.notify_all();
    if (thread_.joinable()) thread_.join();
  }

 private:
  void run() {
    while (!stops_within(std::chrono::seconds(1))) write();
  }
  bool stops_within(std::chrono::seconds time) {
    const Locked lock(mutex_);
    return wake_.wait_for(mutex_, time, [this]() SPILLWAY_REQUIRES(mutex_) { return stopping_; });
  }
  static void write() {
    State& state = rehearsal::state();
    if (!state.dirty) return;
    if (unnamed()) ask_python_to_name_sites();
    write_result();
    if (simulator() != nullptr) simulator()->write_report();
  }
  static bool unnamed() {
    const Locked lock(state().mutex);
    return !state().sites.all_symbolized();
  }

  std::thread thread_;
  Mutex<LockOrder::kLeaf> mutex_;
  std::condition_variable_any wake_;
  bool stopping_ SPILLWAY_GUARDED_BY(mutex_) = false;
};

Writer& writer() {
  static auto* const held = new Writer;  // outlives static destruction
  return *held;
}

void finish() {
  State& state = rehearsal::state();
  if (state.forked) return;
  writer().stop();
  {
    const spillway::Locked lock(state.mutex);
    state.complete = true;
    close_stream();
  }
  name_sites();
  write_result();
  if (simulator() != nullptr) simulator()->write_report();  // the process may end by _exit
}

// Beside this library. "" when Spillway is PyTorch's allocator, else why not.
std::string install_spillway() {
  const std::string shim = libtorch::shim_name(libtorch_version());
  return libtorch::install_shim(path_beside(&finish, shim.c_str()).text, RTLD_GLOBAL);
}

void note_uncaught(const std::exception& error, bool out_of_memory) {
  const std::string text = error.what();
  const Locked lock(state().mutex);
  if (!state().uncaught.type.empty()) return;  // the program ends already
  state().uncaught = {"C++ exception", text, out_of_memory, text.find("out of memory") != std::string::npos};
}

std::terminate_handler outer_terminate = nullptr;

// A C++ program's last word: an exception that nobody catches ends it before any function of atexit.
void say_what_terminates() {
  try {
    if (const auto error = std::current_exception()) std::rethrow_exception(error);
  } catch (const c10::OutOfMemoryError& error) {
    note_uncaught(error, true);
  } catch (const std::exception& error) {
    note_uncaught(error, false);
  } catch (...) {  // It has no text.  NOLINT(bugprone-empty-catch)
  }
  write_result();
  outer_terminate();
}

void start() {
  outer_terminate = std::set_terminate(say_what_terminates);
  ::pthread_atfork(nullptr, nullptr, [] { state().forked = true; });
  open_stream();
  open_history();
  watch_allocator();
  watch_reads();
  if (settings().values == "random") give_floats_their_numbers();
  std::atexit(finish);  // Python's end comes first; this is for programs without it
  writer().start();
  start_python_parts();
}

enum class Progress { kNew, kWaiting, kDone };

int install() {
  static Progress progress = Progress::kNew;
  if (progress == Progress::kNew) {
    progress = Progress::kWaiting;
    if (settings().allocator == "spillway") {
      if (const std::string error = install_spillway(); !error.empty()) {
        std::fprintf(stderr, "spillway rehearsal: Spillway is not PyTorch's allocator: %s\n", error.c_str());
        {
          const Locked lock(state().mutex);
          state().problem = "Spillway is not PyTorch's allocator: " + error;
        }
        write_result();
        return kFailed;
      }
    }
  }
  if (!allocator_is_ready()) return kLater;
  start();
  return kInstalled;
}

}  // namespace

State& state() {
  static auto* const held = new State;
  return *held;
}

}  // namespace spillway::rehearsal

#define SPILLWAY_EXPORT extern "C" __attribute__((visibility("default")))

// The simulated runtime calls it with calls for a device, one thread at a time, until it is not "later".
SPILLWAY_EXPORT int spillway_plugin_install() {
  try {
    return spillway::rehearsal::install();
  } catch (const std::exception& error) {
    std::fprintf(stderr, "spillway rehearsal: %s\n", error.what());
    return spillway::rehearsal::kFailed;
  }
}

SPILLWAY_EXPORT void spillway_rehearsal_step() {
  using namespace spillway::rehearsal;
  State& state = spillway::rehearsal::state();
  size_t devices = 0;
  {
    const spillway::Locked lock(state.mutex);
    devices = state.ledgers.size();
  }
  if (devices > 0) keep_stacks();
  std::vector<Levels> levels;
  levels.reserve(devices);
  for (size_t i = 0; i < devices; ++i) levels.push_back(levels_of(static_cast<int>(i)));
  const spillway::Locked lock(state.mutex);
  ++state.steps;
  for (size_t i = 0; i < devices; ++i) state.ledgers[i].step_ended(levels[i]);
  write_step(state.steps);
  write_history_step(state.steps);
}

// `kind` is ledger.h's. Addresses are the machine's, so one ledger knows each.
SPILLWAY_EXPORT void spillway_rehearsal_classify(const uint64_t* addresses, size_t count, int kind) {
  using namespace spillway::rehearsal;
  State& state = spillway::rehearsal::state();
  const spillway::Locked lock(state.mutex);
  for (Ledger& ledger : state.ledgers)
    for (size_t i = 0; i < count; ++i) ledger.classify(addresses[i], static_cast<Kind>(kind));
  state.dirty = true;
}

SPILLWAY_EXPORT void spillway_rehearsal_end_by_steps(int ended) {
  const spillway::Locked lock(spillway::rehearsal::state().mutex);
  spillway::rehearsal::state().ended_by_steps = ended != 0;
}

SPILLWAY_EXPORT void spillway_rehearsal_checkpointed() {
  const spillway::Locked lock(spillway::rehearsal::state().mutex);
  ++spillway::rehearsal::state().checkpointed_models;
}

// 1 and -1: between them the thread's launches make unknown only what `forget` is told of.
SPILLWAY_EXPORT void spillway_rehearsal_confine(int change) {
  if (const auto* const driver = spillway::rehearsal::simulator()) driver->confine(change);
}

SPILLWAY_EXPORT void spillway_rehearsal_forget(uint64_t address, uint64_t bytes) {
  if (const auto* const driver = spillway::rehearsal::simulator()) driver->tell(address, nullptr, bytes);
}

SPILLWAY_EXPORT void spillway_rehearsal_has_python() {
  const spillway::Locked lock(spillway::rehearsal::state().mutex);
  spillway::rehearsal::state().has_python = true;
}

// 1 begins and -1 ends what reads.h calls numbers; the end gives whether there were any.
SPILLWAY_EXPORT int spillway_rehearsal_count_as_number(int change) {
  if (change < 0) return spillway::rehearsal::end_numbers() > 0 ? 1 : 0;
  spillway::rehearsal::begin_numbers();
  return 0;
}

SPILLWAY_EXPORT void spillway_rehearsal_decided() {
  spillway::rehearsal::note_decision();
}

SPILLWAY_EXPORT void spillway_rehearsal_architectures(const char* list) {
  const spillway::Locked lock(spillway::rehearsal::state().mutex);
  spillway::rehearsal::state().architectures = list;
}

SPILLWAY_EXPORT void spillway_rehearsal_uncaught(const char* type, const char* message, int out_of_memory,
                                                 int names_memory) {
  const spillway::Locked lock(spillway::rehearsal::state().mutex);
  spillway::rehearsal::state().uncaught = {type, message, out_of_memory != 0, names_memory != 0};
}

SPILLWAY_EXPORT void spillway_rehearsal_finish() {
  spillway::rehearsal::finish();
}
