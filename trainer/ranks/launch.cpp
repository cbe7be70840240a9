#include "trainer/ranks/launch.h"

#include <charconv>
#include <cstring>

namespace spillway::trainer {
namespace {

constexpr uint32_t kMostRanks = 1 << 20;

class Reader {
 public:
  Reader(const Environment& environment, std::string* error) : environment_(environment), error_(*error) {}

  bool has(const char* name) const { return !text(name).empty(); }
  std::string text(const char* name) const {
    const char* value = environment_(name);
    return value == nullptr ? "" : value;
  }
  bool healthy() const { return error_.empty(); }
  void fail(const std::string& text) {
    if (healthy()) error_ = text;
  }
  std::string required(const char* name) {
    std::string value = text(name);
    if (value.empty()) fail(std::string("the launcher has not set ") + name);
    return value;
  }
  uint32_t number(const char* name, uint32_t most) {
    const std::string value = required(name);
    uint32_t result = 0;
    const auto [end, fault] = std::from_chars(value.data(), value.data() + value.size(), result);
    if (fault != std::errc() || end != value.data() + value.size() || result > most)
      fail(std::string(name) + "='" + value + "' is no number from 0 to " + std::to_string(most));
    return result;
  }
  uint32_t number(const char* name, uint32_t most, uint32_t otherwise) {
    return has(name) ? number(name, most) : otherwise;
  }

 private:
  const Environment& environment_;
  std::string& error_;
};

Launch torchrun(Reader* reader) {
  Launch launch;
  launch.rank = reader->number("RANK", kMostRanks);
  launch.size = reader->number("WORLD_SIZE", kMostRanks);
  launch.store_is_there = reader->text("TORCHELASTIC_USE_AGENT_STORE") == "True";
  launch.restart = reader->number("TORCHELASTIC_RESTART_COUNT", UINT32_MAX, 0);
  if (launch.size == 1) return launch;  // what is left of more goes on from their checkpoint
  launch.local_rank = reader->number("LOCAL_RANK", kMostRanks);
  launch.local_size = reader->number("LOCAL_WORLD_SIZE", kMostRanks, launch.local_rank + 1);
  launch.address = reader->required("MASTER_ADDR");
  launch.port = uint16_t(reader->number("MASTER_PORT", 65535));
  return launch;
}

// The tasks of a job step meet on its first node, at a port that the job's number decides: two jobs of one
// node have different ones.
Launch slurm(Reader* reader) {
  Launch launch;
  launch.rank = reader->number("SLURM_PROCID", kMostRanks);
  launch.size = reader->number("SLURM_STEP_NUM_TASKS", kMostRanks);
  if (launch.size == 1) return launch;
  launch.local_rank = reader->number("SLURM_LOCALID", kMostRanks);
  launch.local_size = launch.local_rank + 1;  // SLURM_STEP_TASKS_PER_NODE is of all nodes, and not needed
  launch.address = reader->has("MASTER_ADDR") ? reader->text("MASTER_ADDR")
                                              : first_host(reader->required("SLURM_STEP_NODELIST"));
  const uint32_t of_job = 15000 + reader->number("SLURM_JOB_ID", UINT32_MAX, 0) % 10000;
  launch.port = uint16_t(reader->number("MASTER_PORT", 65535, of_job));
  return launch;
}

// Slurm counts how often a job was queued again. In each start torchrun counts from 0.
void read_starts(Reader* reader, Launch* launch) {
  const bool in_job = reader->has("SLURM_JOB_ID");
  launch->repeats = launch->store_is_there || in_job;
  launch->started_again =
      launch->restart > 0 || (in_job && reader->number("SLURM_RESTART_COUNT", UINT32_MAX, 0) > 0);
}

}  // namespace

std::optional<std::string> own_gpu(const Launch& launch, const std::string& now) {
  if (now.empty()) return std::to_string(launch.local_rank);
  if (now.find(',') == std::string::npos) return now;
  size_t begin = 0;
  for (uint32_t entry = 0; entry < launch.local_rank; ++entry) {
    const size_t comma = now.find(',', begin);
    if (comma == std::string::npos) return std::nullopt;
    begin = comma + 1;
  }
  return now.substr(begin, now.find(',', begin) - begin);
}

std::string first_host(const std::string& slurm_nodes) {
  const size_t end = slurm_nodes.find_first_of(",[");
  std::string head = slurm_nodes.substr(0, end);
  if (end == std::string::npos || slurm_nodes[end] == ',') return head;
  return head + slurm_nodes.substr(end + 1, slurm_nodes.find_first_of(",-]", end) - end - 1);
}

std::optional<Launch> launch_of(const Environment& environment, std::string* error) {
  error->clear();
  Reader reader(environment, error);
  Launch launch;
  if (reader.has("RANK") || reader.has("WORLD_SIZE"))
    launch = torchrun(&reader);
  else if (reader.has("SLURM_STEP_ID") && reader.has("SLURM_STEP_NUM_TASKS"))
    launch = slurm(&reader);
  read_starts(&reader, &launch);
  if (launch.rank >= launch.size)
    reader.fail("rank " + std::to_string(launch.rank) + " is none of " + std::to_string(launch.size));
  if (!reader.healthy()) return std::nullopt;
  return launch;
}

}  // namespace spillway::trainer
