// What layers keep, in a file on an NVMe disk: a record for each layer of a pass, and a few buffers of the
// host that the records pass through.
//
// A record goes to the disk while the layers after it are computed. The last two stay in their buffers,
// because the backward begins with them; the records before those come from the disk while it goes on. What
// cannot be written stays in memory.
//
// Thread-safety: any thread. Ownership: owns the file; a home keeps it. Errors: c10::OutOfMemoryError where
// the folder or the host has no room; ActivationsLost where a record cannot be read. Units: bytes.
#pragma once
#include <deque>
#include <map>
#include <memory>

#include "base/mutex.h"
#include "trainer/residency/activations/kept_home.h"
#include "trainer/residency/nvme/layer_file.h"

namespace spillway::trainer {

class KeptFile : public std::enable_shared_from_this<KeptFile> {
 public:
  KeptFile(at::Device device, const std::string& folder);
  KeptFile(const KeptFile&) = delete;

  // Room for storages of these bytes that `layer` keeps, the `position`-th of a pass that keeps something. A
  // pass takes a position from the one before.
  std::shared_ptr<KeptHome> home(size_t position, uint32_t layer, std::vector<uint64_t> bytes);
  std::vector<std::string> remarks() const;

 private:
  class Home;
  struct Record {
    std::shared_ptr<LayerHome> home;  // null: the disk had no room for it
    uint64_t bytes = 0;               // that it has room for
    uint64_t pass = 0;                // that has it
    bool is_needed = false;           // for a backward
  };

  Record& with_room(size_t position, uint32_t layer, uint64_t bytes) SPILLWAY_REQUIRES(mutex_);
  Record& record_of(size_t position, uint64_t pass) SPILLWAY_REQUIRES(mutex_);
  void written(size_t position) SPILLWAY_REQUIRES(mutex_);
  void expect_before(size_t position) SPILLWAY_REQUIRES(mutex_);
  void forget(size_t position, uint64_t pass);

  mutable Mutex<LockOrder::kKeptFile> mutex_;
  const std::shared_ptr<LayerFile> file_ SPILLWAY_GUARDED_BY(mutex_);
  std::map<size_t, Record> records_ SPILLWAY_GUARDED_BY(mutex_);
  std::deque<size_t> newest_ SPILLWAY_GUARDED_BY(mutex_);  // that stay in their buffers
};

}  // namespace spillway::trainer
