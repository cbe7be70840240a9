#include "interpose/gate/gate.h"

#include <linux/futex.h>
#include <linux/membarrier.h>
#include <pthread.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <atomic>
#include <climits>

#include "interpose/hooks/unknown_symbols.h"
#include "interpose/plain_lock.h"
#include "interpose/process.h"

namespace spillway::interpose {
namespace {

constexpr useconds_t kLookAgainUs = 20;
// A call that is under way may itself wait for what is held now.
constexpr uint64_t kMostPassingUs = 1'000'000;

PlainMutex<LockOrder::kLeaf> listing;
std::atomic<bool> taken{false};  // by the thread that closes it, or holds it closed
pthread_once_t prepared = PTHREAD_ONCE_INIT;
pthread_key_t thread_end;
GateSlot* slots SPILLWAY_GUARDED_BY(listing) = nullptr;
std::atomic<bool> can_unlist{false};  // a thread's slot when it ends, or it is not listed
std::atomic<bool> all_listed{true};

long membarrier(int command) {
  return ::syscall(SYS_membarrier, command, 0, 0);
}

void unlist(void* ended) {
  auto* slot = static_cast<GateSlot*>(ended);
  const Locked lock(listing);
  for (GateSlot** at = &slots; *at != nullptr; at = &(*at)->next) {
    if (*at != slot) continue;
    *at = slot->next;
    break;
  }
  slot->listed = false;
}

// Of the parent's threads only the one that forked is there.
void in_child() {
  listing.free_in_child();
  taken.store(false);
  gate_closed.store(0);
  {
    const Locked lock(listing);
    slots = nullptr;
  }
  all_listed.store(true);
  gate_slot.listed = false;
  gate_slot.passing.store(0);
  gate_slot.holds = false;
}

void prepare() {
  gate_needs_fence.store(membarrier(MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED) != 0);
  can_unlist.store(pthread_key_create(&thread_end, unlist) == 0);
  pthread_atfork(nullptr, nullptr, in_child);
}

uint64_t now_us() {
  timespec now{};
  ::clock_gettime(CLOCK_MONOTONIC, &now);
  return static_cast<uint64_t>(now.tv_sec) * 1'000'000 + static_cast<uint64_t>(now.tv_nsec) / 1000;
}

bool all_have_passed(uint64_t deadline_us) {
  const Locked lock(listing);
  bool passed = true;
  for (const GateSlot* slot = slots; passed && slot != nullptr; slot = slot->next) {
    if (slot == &gate_slot) continue;
    while (slot->passing.load(std::memory_order_acquire) != 0) {
      passed = now_us() < deadline_us;
      if (!passed) break;
      ::usleep(kLookAgainUs);
    }
  }
  return passed;
}

bool take_until(uint64_t deadline_us) {
  while (taken.exchange(true, std::memory_order_acquire)) {
    if (now_us() >= deadline_us) return false;
    ::usleep(kLookAgainUs);
  }
  return true;
}

// Where threads pass without a fence, it is the closing one's to make its word and theirs visible.
bool shows_to_all_threads() {
  return gate_needs_fence.load(std::memory_order_relaxed) ||
         membarrier(MEMBARRIER_CMD_PRIVATE_EXPEDITED) == 0;
}

bool holds_all_work() {
  if (!all_listed.load()) return false;
  if (!has_unlisted_work()) return true;
  static std::atomic<bool> said{false};
  if (!said.exchange(true))
    say("memory in use stays where it is: the program calls functions of a newer driver that this version "
        "of Spillway does not know");
  return false;
}

}  // namespace

void list_gate_slot() {
  pthread_once(&prepared, prepare);
  if (!can_unlist.load() || pthread_setspecific(thread_end, &gate_slot) != 0) {
    all_listed.store(false);
    gate_slot.listed = true;
    return;
  }
  const Locked lock(listing);
  gate_slot.next = slots;
  slots = &gate_slot;
  gate_slot.listed = true;
}

void wait_for_gate() {
  ::syscall(SYS_futex, reinterpret_cast<uint32_t*>(&gate_closed), FUTEX_WAIT_PRIVATE, 1, nullptr, nullptr, 0);
}

uint32_t pass_gate(uint32_t passing) {
  const uint32_t before = gate_slot.passing.load(std::memory_order_relaxed);
  if (passing == 0) {
    gate_slot.passing.store(0, std::memory_order_release);
  } else if (before == 0) {
    if (!gate_slot.listed) list_gate_slot();
    while (!Passage::enter() && !gate_slot.holds) wait_for_gate();
  }
  return before;
}

int close_gate(uint64_t microseconds) {
  pthread_once(&prepared, prepare);
  if (!holds_all_work() || !take_until(now_us() + microseconds)) return 0;
  const uint64_t deadline = now_us() + (microseconds < kMostPassingUs ? microseconds : kMostPassingUs);
  gate_closed.store(1, std::memory_order_seq_cst);
  gate_slot.holds = true;
  if (shows_to_all_threads() && all_have_passed(deadline) && holds_all_work()) return 1;
  open_gate();
  return 0;
}

void open_gate() {
  gate_slot.holds = false;
  gate_closed.store(0, std::memory_order_seq_cst);
  ::syscall(SYS_futex, reinterpret_cast<uint32_t*>(&gate_closed), FUTEX_WAKE_PRIVATE, INT_MAX, nullptr,
            nullptr, 0);
  taken.store(false, std::memory_order_release);
}

}  // namespace spillway::interpose

// The simulated card's kernels find it by this name: they compute on the CPU, after their launch.
extern "C" __attribute__((visibility("default"))) uint32_t spillway_pass_gate(uint32_t passing) {
  return spillway::interpose::pass_gate(passing);
}
