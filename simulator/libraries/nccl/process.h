// Whether a process that takes part is still there. A process id alone does not say: it may be used again,
// and a zombie still has one.
//
// Thread-safety: any thread. Ownership: values. Errors: a process that can not be looked at is gone. Units:
// clock ticks since boot for the start.
#pragma once
#include <cstdint>

namespace spillway::nccl {

struct Process {
  int32_t id = 0;
  uint64_t start = 0;
};

Process this_process();
bool alive(const Process& process);

}  // namespace spillway::nccl
