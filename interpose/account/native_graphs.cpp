#include "interpose/account/native_graphs.h"

#include <pthread.h>

#include "allocator/accounting/process_budget.h"
#include "interpose/account/native_account.h"
#include "interpose/hooks/driver_table.h"
#include "interpose/plain_lock.h"

namespace spillway::interpose {
namespace {

static_assert(SPILLWAY_MOST_DEVICES <= 64, "a bit for each");
PlainMutex<LockOrder::kNativeGraphs> counting;
uint64_t counted_bytes[SPILLWAY_MOST_DEVICES] SPILLWAY_GUARDED_BY(counting);
pthread_once_t prepared = PTHREAD_ONCE_INIT;

void in_child() {
  counting.free_in_child();
  const Locked lock(counting);
  graph_memory_devices.store(0);
  for (uint64_t& bytes : counted_bytes) bytes = 0;
}

void prepare() {
  pthread_atfork(nullptr, nullptr, in_child);
}

bool read_reserved(int device, uint64_t* bytes) {
  cuuint64_t told = 0;
  if (real().cuDeviceGetGraphMemAttribute == nullptr ||
      real().cuDeviceGetGraphMemAttribute(device, CU_GRAPH_MEM_ATTR_RESERVED_MEM_CURRENT, &told) !=
          CUDA_SUCCESS)
    return false;
  *bytes = told;
  return true;
}

void set_counted(int device, uint64_t bytes) SPILLWAY_REQUIRES(counting) {
  uint64_t& counted = counted_bytes[device];
  spillway_budget* budget = native_budget();
  if (budget == nullptr) return;
  if (bytes > counted)
    budget::add(*budget, static_cast<size_t>(device), bytes - counted, budget::By::kDriverCall);
  else
    give_back(device, counted - bytes);
  counted = bytes;
}

}  // namespace

void note_graph_memory(int device) {
  if (!is_device(device) || native_budget() == nullptr) return;
  pthread_once(&prepared, prepare);
  graph_memory_devices.fetch_or(uint64_t{1} << device, std::memory_order_relaxed);
}

// One after the other, so that the newest number is the last to be counted.
void count_graph_memory() {
  const Locked lock(counting);
  for (uint64_t left = graph_memory_devices.load(); left != 0; left &= left - 1) {
    const int device = __builtin_ctzll(left);
    uint64_t bytes = 0;
    if (read_reserved(device, &bytes)) set_counted(device, bytes);
  }
}

void graph_memory_gone(int device) {
  if (!is_device(device)) return;
  const Locked lock(counting);
  set_counted(device, 0);
}

}  // namespace spillway::interpose
