// Memory of graphs' allocation nodes on the account of native.h. The driver takes it when such a graph is
// launched or uploaded and keeps it until cuDeviceGraphMemTrim, whatever the graph's free nodes do; how much
// a launch will take it tells nobody. So what it says that it has reserved is on the account from then on: a
// launch may pass the limit by it, and what is asked for afterwards finds less room.
//
// Thread-safety: any thread. A child of fork begins with nothing. Errors: where the driver does not tell,
// what was told last stays. In processes that never made an allocation node nothing is asked.
#pragma once
#include <cuda.h>

#include <atomic>
#include <cstdint>

namespace spillway::interpose {

inline std::atomic<uint64_t> graph_memory_devices{0};  // a bit for each on which nodes allocate

// An allocation node was made, or will be by a capture.
void note_graph_memory(int device);
void count_graph_memory();
// With the device's context all of it is gone.
void graph_memory_gone(int device);

inline void graph_memory_may_have_changed() {
  if (graph_memory_devices.load(std::memory_order_relaxed) != 0) [[unlikely]]
    count_graph_memory();
}

}  // namespace spillway::interpose
