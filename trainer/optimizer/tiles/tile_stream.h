// The tiles of an update on their way through a device: the next one's parts come while one is updated, and
// those of the one before go back.
//
// A part that lies on the device is used where it is. One that lies on the host is copied to a slot and back,
// on the device's copy streams; a device has three slots, or more. The host queues all of it and waits for no
// copy, unless the tile's home is a buffer that someone waits for (`Home::release`): then it waits for a tile
// three behind.
//
// Thread-safety: one thread. Ownership: owns slots and marks; homes are the caller's, and are in use until
// `settle`. Errors: LibTorch's exceptions, of which running out of memory comes from `prepare` alone.
#pragma once
#include <deque>
#include <functional>
#include <map>

#include "trainer/residency/copy_stream.h"

namespace spillway::trainer {

struct TileKey {
  size_t parameter = 0;
  int64_t begin = 0, length = 0;
};

class TileStream {
 public:
  struct Home {
    // A tile's parts, contiguous tensors that the update reads and writes, where they lie; called once for a
    // tile, in the order of the schedule.
    std::function<std::vector<at::Tensor>(const TileKey&)> parts;
    // Whether `parts` may be called for this one now; else some tiles have to go back first.
    std::function<bool(const TileKey&)> is_ready;
    // Whether `release` is to be called when its parts are at home again; and that, in the same order.
    std::function<bool(const TileKey&)> is_released;
    std::function<void(const TileKey&)> release;
  };
  // A tile of the schedule: the device that updates it, and the bytes of its parts that lie elsewhere.
  struct Stop {
    TileKey key;
    at::Device device{at::kCPU};
    uint64_t staged_bytes = 0;
  };

  explicit TileStream(Home home) : home_(std::move(home)) {}
  ~TileStream();
  TileStream(const TileStream&) = delete;

  // Slots and events for an update of these tiles: at most so many on a device.
  void prepare(std::vector<Stop> schedule, uint32_t slots);

  void begin();
  // The next tile's parts, on its device: what the device computes from now on runs behind their arrival.
  const std::vector<at::Tensor>& next();
  // Its update was queued.
  void updated();
  void end();
  // Waits until every part is at home.
  void settle();

 private:
  struct Slot {
    at::Tensor bytes;
    CopyStream::Mark arrived, computed, stored;
  };
  struct Lane {  // of a device
    std::vector<Slot> slots;
    CopyStream::Mark at_home;
    uint64_t sent = 0, updated = 0;  // staged tiles of this update
    CopyStream* to_device = nullptr;
    CopyStream* to_host = nullptr;
  };
  struct Tile {
    const Stop* stop = nullptr;
    std::vector<at::Tensor> parts;
    std::vector<at::Tensor> here;
    Slot* slot = nullptr;
  };

  void make_slots(at::Device device, uint64_t bytes, uint64_t count);
  bool can_fetch(const Stop& stop) const;
  void fetch();
  void fetch_ahead();
  void stage(Tile* tile, Lane* lane);
  void send_back(const Tile& tile);
  void release_all_but(size_t count);

  const Home home_;
  std::vector<Stop> schedule_;
  std::map<int, Lane> lanes_;  // by device index
  std::deque<Tile> coming_;    // fetched, and not updated
  std::deque<Tile> going_;     // updated, and not released
  size_t fetched_ = 0;         // of the schedule
};

}  // namespace spillway::trainer
