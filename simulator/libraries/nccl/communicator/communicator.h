// One rank of a communicator: how it meets the others, what it has submitted, and what went wrong.
//
// Thread-safety: every function may be called from any thread. The driver may be called with the lock held:
// it calls `begin` and `wait`, and lets go of works, without its own. Ownership: shared by the handle that
// the program has and by works that have not ended; what it models of the card's memory is given back by
// `leave`. Errors: NCCL's, with the reason in ncclGetLastError; those of other ranks stay and come with every
// later call. Units: bytes, ms of real time.
#pragma once
#include <cuda.h>
#include <nccl.h>

#include <chrono>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "base/mutex.h"
#include "simulator/libraries/nccl/communicator/traffic.h"
#include "simulator/libraries/nccl/communicator/unique_id.h"
#include "simulator/libraries/nccl/model.h"

namespace spillway::nccl {

// The part of ncclConfig_t that changes anything here.
struct Settings {
  bool blocking = true;
  int least_channels = -1, most_channels = -1;
  bool shares_memory = false;  // with the communicator that it is made from
};

class Communicator : public std::enable_shared_from_this<Communicator> {
 public:
  // Null: `*result`. Neither waits for other ranks: `advance` does the rest.
  static std::shared_ptr<Communicator> join(const Meeting& meeting, int ranks, int rank, int device,
                                            const Settings& settings, ncclResult_t* result);
  // Null with ncclSuccess: this rank has no color.
  static std::shared_ptr<Communicator> split(const std::shared_ptr<Communicator>& parent, int color, int key,
                                             const Settings& settings, ncclResult_t* result);
  // Without the ranks of `excluded`, each one of the parent's.
  static std::shared_ptr<Communicator> shrink(const std::shared_ptr<Communicator>& parent,
                                              const std::set<int>& excluded, const Settings& settings,
                                              ncclResult_t* result);
  // To `ranks`: those that are there keep their numbers, new ones join by the id of `make_id_to_grow`.
  static std::shared_ptr<Communicator> grow(const std::shared_ptr<Communicator>& parent, int ranks,
                                            const Settings& settings, ncclResult_t* result);
  ncclResult_t make_id_to_grow(ncclUniqueId* out);
  ~Communicator();

  // One step towards being ready, without waiting: ncclSuccess, ncclInProgress or an error.
  ncclResult_t advance();
  ncclResult_t wait_ready();

  int rank() const { return rank_; }
  int ranks() const { return ranks_; }
  int device() const { return device_; }
  const Settings& settings() const { return settings_; }

  // Puts calls, which belong together, on the stream.
  ncclResult_t submit(std::vector<Call> calls, cudaStream_t stream);
  uint64_t duration_of(const std::vector<Call>& calls) const;

  // Gives the connections' memory back until `resume`, which takes it again or leaves all as it was.
  ncclResult_t suspend();
  ncclResult_t resume();
  struct MemoryStatistics {
    uint64_t can_suspend_bytes = 0, persistent_bytes = 0;  // what is suspended counts too
    bool suspended = false;
  };
  MemoryStatistics memory();

  // What the driver calls.
  void begin(const std::shared_ptr<Work>& work);
  SpillwayExternalState wait(const Work& work, int64_t timeout_ms);

  ncclResult_t async_error();
  ncclResult_t finalize();
  // Takes no part any more. `abort`: what has not ended counts as ended.
  void leave(bool abort);

 private:
  // How it is made from another one: the split that all ranks of that have to call, and whom it then waits
  // for.
  struct Split {
    uint64_t number;
    int color;
  };
  struct Origin {
    std::shared_ptr<SharedFile> file;
    int rank;
    std::vector<int> members;
  };

  Communicator(int device, const Settings& settings) : device_(device), settings_(settings) {}
  ncclResult_t enter_locked(const Place& place, int rank, int ranks) SPILLWAY_REQUIRES(mutex_);
  ncclResult_t claim_locked(RankPart& part) SPILLWAY_REQUIRES(mutex_);
  ncclResult_t advance_locked() SPILLWAY_REQUIRES(mutex_);
  ncclResult_t finish_split_locked(Split split) SPILLWAY_REQUIRES(mutex_);
  ncclResult_t meet_locked() SPILLWAY_REQUIRES(mutex_);
  ncclResult_t become_ready_locked() SPILLWAY_REQUIRES(mutex_);
  ncclResult_t check_cards() const;
  struct Buffer {
    uint64_t bytes;
    bool can_suspend;
    CUmemGenericAllocationHandle page = 0;  // 0 while it is suspended
  };
  ncclResult_t allocate_locked(Buffer& buffer) SPILLWAY_REQUIRES(mutex_);
  void release_suspendable_locked() SPILLWAY_REQUIRES(mutex_);
  ncclResult_t charge_locked(uint64_t bytes, bool can_suspend) SPILLWAY_REQUIRES(mutex_);
  ncclResult_t charge_for(const std::vector<Call>& calls);

  ncclResult_t async_error_locked() SPILLWAY_REQUIRES(mutex_);
  enum class Begun { kYes, kNoRoom, kNever };
  Begun begin_one(const std::shared_ptr<Work>& work, const Call& call, uint32_t* seen);
  // How it stands. Both: `*seen` is how much had changed before.
  SpillwayExternalState look_at(const Work& work, uint32_t* seen);
  void progress_locked() SPILLWAY_REQUIRES(mutex_);
  void look_for_the_dead_locked() SPILLWAY_REQUIRES(mutex_);
  void fail_locked(ncclResult_t result, const std::string& why) SPILLWAY_REQUIRES(mutex_);
  SpillwayExternalState state_locked(const Work& work) const SPILLWAY_REQUIRES(mutex_);
  std::shared_ptr<SharedFile> waits_on();
  bool time_to_look() SPILLWAY_REQUIRES(mutex_);

  const int device_;
  const Settings settings_;
  int rank_ = -1, ranks_ = 0;
  ProcessIdentity creator_;
  Links links_ = {};

  Mutex<LockOrder::kNcclCommunicator> mutex_;
  std::shared_ptr<SharedFile> file_;                        // written once, with the lock, when it enters
  std::optional<Split> split_ SPILLWAY_GUARDED_BY(mutex_);  // until it is done
  Origin origin_ SPILLWAY_GUARDED_BY(mutex_);
  std::optional<Traffic> traffic_ SPILLWAY_GUARDED_BY(mutex_);
  bool ready_ SPILLWAY_GUARDED_BY(mutex_) = false, left_ SPILLWAY_GUARDED_BY(mutex_) = false,
              aborted_ SPILLWAY_GUARDED_BY(mutex_) = false;
  bool finalizing_ SPILLWAY_GUARDED_BY(mutex_) = false, ring_connected_ SPILLWAY_GUARDED_BY(mutex_) = false;
  std::set<int> connected_ SPILLWAY_GUARDED_BY(mutex_);      // for sends and receives
  std::vector<Buffer> buffers_ SPILLWAY_GUARDED_BY(mutex_);  // what the connections take of the card
  bool suspended_ SPILLWAY_GUARDED_BY(mutex_) = false;
  uint64_t splits_ SPILLWAY_GUARDED_BY(mutex_) = 0, shrinks_ SPILLWAY_GUARDED_BY(mutex_) = 0,
                   grows_ SPILLWAY_GUARDED_BY(mutex_) = 0;
  bool grows_by_id_ SPILLWAY_GUARDED_BY(mutex_) = false;  // there is an id for the next growth
  ncclResult_t error_ SPILLWAY_GUARDED_BY(mutex_) = ncclSuccess;
  std::string why_ SPILLWAY_GUARDED_BY(mutex_);
  std::chrono::steady_clock::time_point looked_ SPILLWAY_GUARDED_BY(mutex_), entered_
      SPILLWAY_GUARDED_BY(mutex_);
  const ProcessIdentity owner_ = this_process();
};

}  // namespace spillway::nccl
