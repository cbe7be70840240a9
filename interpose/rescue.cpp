#include "interpose/rescue.h"

#include <atomic>

#include "interpose/account/native.h"
#include "interpose/core.h"
#include "interpose/hooks/captures.h"
#include "interpose/process.h"

namespace spillway::interpose {
namespace {

CUresult left_alone() {
  spillway_incident_totals& met = summary().incidents;
  __atomic_fetch_add(&met.failures, 1, __ATOMIC_RELAXED);
  __atomic_fetch_add(&met.gave_up, 1, __ATOMIC_RELAXED);
  return CUDA_ERROR_OUT_OF_MEMORY;
}

void say_once(const char* why) {
  static std::atomic<bool> said{false};
  if (!said.exchange(true)) say("nothing is rescued: ", why);
}

struct Attempt {
  CUresult (*again)(void*);
  void* context;
  CUresult result = CUDA_ERROR_OUT_OF_MEMORY;
};

// Any other error than that of memory is the program's: it ends the rescue.
int try_again(void* context) {
  auto& attempt = *static_cast<Attempt*>(context);
  attempt.result = attempt.again(attempt.context);
  return attempt.result != CUDA_ERROR_OUT_OF_MEMORY;
}

}  // namespace

CUresult rescue(const Shortage& shortage, CUresult (*again)(void*), void* context) {
  const int device = shortage.asked.device >= 0 ? shortage.asked.device : current_device();
  if (mode() == Mode::kObserve || device < 0) return left_alone();
  const spillway_core_table* table = core();
  if (table == nullptr) return left_alone();
  const spillway_driver_request request{.size = sizeof request,
                                        .device = device,
                                        .bytes = shortage.asked.bytes,
                                        .call = name_of(shortage.function),
                                        .captures = captures_under_way(),
                                        .over_limit = shortage.over_limit ? 1u : 0u};
  Attempt attempt{again, context};
  spillway_status status = SPILLWAY_OUT_OF_MEMORY;
  if (shortage.asked.on_host)
    status = table->note_host_failure(&request, 0, nullptr);
  else
    status = table->rescue(&request, try_again, &attempt);
  if (status != SPILLWAY_OK && status != SPILLWAY_OUT_OF_MEMORY) {  // the core did not even start
    say_once(core_error());
    return left_alone();
  }
  note_trace();
  return attempt.result;
}

}  // namespace spillway::interpose
