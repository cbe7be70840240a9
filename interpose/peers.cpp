#include "interpose/peers.h"

#include <pthread.h>

#include "interpose/captures.h"
#include "interpose/core.h"
#include "interpose/process.h"

namespace spillway::interpose {
namespace {

pthread_once_t once = PTHREAD_ONCE_INIT;

void join() {
  if (mode() == Mode::kObserve) return;
  const spillway_core_table* table = core();
  const bool member = table != nullptr && table->join_ledger(captures_under_way) == SPILLWAY_OK;
  summary().takes_part.store(member ? 1 : 0);
}

}  // namespace

void join_ledger_once() {
  pthread_once(&once, join);
}

}  // namespace spillway::interpose
