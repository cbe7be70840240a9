// Which of the processes of one training this is, as the launcher's environment says: torchrun's (or any
// other that sets RANK and WORLD_SIZE, such as Ray Train), or Slurm's srun. A process that nobody launched is
// alone.
//
// Thread-safety: functions. Errors: texts that name the variable.
#pragma once
#include <cstdint>
#include <functional>
#include <optional>
#include <string>

namespace spillway::trainer {

struct Launch {
  uint32_t rank = 0, size = 1;
  uint32_t local_rank = 0, local_size = 1;  // on this machine
  std::string address{};                    // where the ranks meet
  uint16_t port = 0;
  bool store_is_there = false;  // the launcher's agent keeps it; else rank 0 does
  uint32_t restart = 0;         // of an elastic launcher: each has names of its own in the store
  bool repeats = false;        // the launcher may start the same command line again: torchrun, a job of Slurm
  bool started_again = false;  // and this is such a start

  bool is_alone() const { return size == 1; }
};

// A variable's value, or nullptr.
using Environment = std::function<const char*(const char* name)>;

std::optional<Launch> launch_of(const Environment& environment, std::string* error);

// What CUDA_VISIBLE_DEVICES has to be for the rank to see its own GPU alone, when it is `now` ("" for all
// GPUs): the rank's entry, or `now` where there is one entry because the launcher has chosen. Nothing where
// there are fewer.
std::optional<std::string> own_gpu(const Launch& launch, const std::string& now);

// "node[03-05,9],other" begins with "node03".
std::string first_host(const std::string& slurm_nodes);

}  // namespace spillway::trainer
