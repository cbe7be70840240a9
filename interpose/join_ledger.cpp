#include "interpose/join_ledger.h"

#include <atomic>

#include "interpose/core.h"
#include "interpose/hooks/captures.h"
#include "interpose/process.h"

namespace spillway::interpose {
namespace {

std::atomic<bool> asked{false};

void join() {
  if (mode() == Mode::kObserve) return;
  const spillway_core_table* table = core();
  const bool member = table != nullptr && table->join_ledger(captures_under_way) == SPILLWAY_OK;
  summary().membership.store(member ? Membership::kMember : Membership::kRefused);
}

}  // namespace

// The first to come does it, and nobody waits for it.
void join_ledger_once() {
  if (!asked.load(std::memory_order_relaxed) && !asked.exchange(true)) join();
}

}  // namespace spillway::interpose
