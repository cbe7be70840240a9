// A device's slots for layers whose bytes live elsewhere: a few layers are there at a time.
//
// `begin` has the device wait for the layer's bytes, and starts the copies of the layers that come next in
// the order of uses into slots that nobody uses. `end` starts the copy back of what was written. The host
// waits for nothing, unless it is to use the bytes itself: one copy, or the computation, is queued behind
// another by marks. What was written and is not at home yet stays in its slot until it is, whatever fails
// meanwhile. Layers on a disk are expected in a file before they come to a slot; the host waits for one that
// is not there when its use begins. Layers that ranks share come and go in an order that follows from the
// uses alone: it is the same on all ranks.
//
// Thread-safety: one thread at a time, such as one that runs the forward and then autograd's of the device;
// layers in use at the same time are at most the slots. Ownership: owns slots and blocks. Errors: LibTorch's
// exceptions; `reserve` alone allocates device memory.
#pragma once
#include <map>

#include "trainer/plan/schedule.h"
#include "trainer/residency/copy_stream.h"
#include "trainer/residency/layer_block.h"
#include "trainer/residency/nvme/layer_file.h"

namespace spillway::trainer {

class LayerCache {
 public:
  LayerCache(at::Device device, uint32_t most_slots);
  ~LayerCache();
  LayerCache(const LayerCache&) = delete;

  void add(uint32_t layer, LayerBlock block, bool is_zero);
  void remove(uint32_t layer);  // its bytes are at home, or are not wanted
  bool empty() const { return entries_.empty(); }
  // The file that some of the layers have their homes in; null: none.
  void set_file(std::shared_ptr<LayerFile> file) { file_ = std::move(file); }
  const LayerBlock& block(uint32_t layer) const { return entries_.at(layer).block; }
  // All its numbers are zero, whatever the bytes at home are.
  bool is_zero(uint32_t layer) const { return entries_.at(layer).zero; }

  // As many slots as the layers that are here need. Nothing, where there are. Without room for larger ones
  // those that there are stay.
  void reserve();
  // The coming uses of layers that are here, again and again; of layers that ranks share once. REQUIRES:
  // reserve().
  void follow(std::vector<uint32_t> uses);

  // The layer's tensors have memory from `begin` until its last `end`. What is written between them must be
  // announced: it counts also where there is no `end`, because the pass was cut off.
  enum class Use : uint8_t { kRead, kWrite };
  void begin(uint32_t layer, Use use);
  // kWorthless: the bytes at home too. kSpoilt: those at home are as they were before the use.
  enum class After : uint8_t { kKept, kWorthless, kSpoilt };
  void end(uint32_t layer, After after);
  // Of a pass that was cut off: nothing is in use. No thread may compute with a layer any more.
  void let_go();

  void synchronise();  // waits until all bytes are at home and no copy is under way
  void forget();       // the bytes at home may change: no layer is on the device. REQUIRES: synchronise()
  // Other layers of the same bytes are used from now on, where several share them: none is on the device, and
  // what is fetched comes behind what was written. REQUIRES: none is in use.
  void turn();
  // The layer's bytes go to another home. On an exception they are where they were.
  void move_to(uint32_t layer, std::shared_ptr<LayerHome> home);
  void set_zero(uint32_t layer);  // what it was is lost
  // Nothing brings its bytes from home before its next use, which writes all of its numbers, or before they
  // are taken there (`take_home`).
  void set_stale(uint32_t layer) { entries_.at(layer).stale = true; }
  // For the host to read and write: its bytes at home, which no copy reads or writes. It is in no slot then.
  // REQUIRES: nobody uses it, and its home is memory of the host.
  at::Tensor take_home(uint32_t layer);
  // The bytes at home are what it is. REQUIRES: synchronise()
  void set_filled(uint32_t layer) { entries_.at(layer).zero = false; }

 private:
  struct Entry {
    LayerBlock block;
    bool zero = false, stale = false;
    CopyStream::Mark fetched{};  // the last copy from its home
  };
  struct Slot {
    at::Tensor memory;  // [bytes]
    std::optional<uint32_t> layer;
    uint32_t users = 0;
    bool changed = false;                    // at home are other bytes
    bool in_doubt = false;                   // `used` is not known: a pass was cut off
    CopyStream::Mark used, filled, written;  // the computation with it, the copies into it and out of it
    uint64_t turn = 0;                       // of the uses that have ended, which was its last one
  };

  void wait_for_copies() const;
  Slot* slot_of(uint32_t layer);
  Entry& entry_of(const Slot& slot);
  Slot* free_slot(uint32_t layer, const std::vector<uint32_t>& next);
  void fetch(Slot* slot, uint32_t layer);
  void take(Slot* slot, uint32_t layer);
  void clear(Slot* slot, uint32_t layer);
  void write_back(Slot* slot);
  void bring(Slot* slot, const LayerBlock& block);
  void add_up(Slot* slot);
  void give_up(Slot* slot);
  CopyStream::Mark last_use(const Slot& slot) const;
  void fetch_next(std::optional<uint32_t> present);
  void expect_next();
  uint32_t reach_of(const std::vector<uint32_t>& uses) const;
  bool may_come(uint32_t layer);
  std::optional<uint32_t> record_of(uint32_t layer) const { return entries_.at(layer).block.home().record(); }

  const at::Device device_;
  const uint32_t most_slots_;
  CopyStream &to_device_, &to_host_;
  std::shared_ptr<LayerFile> file_;
  std::map<uint32_t, Entry> entries_;
  std::vector<Slot> slots_;
  uint64_t ended_ = 0;  // uses
  UseOrder order_;
  uint32_t reach_ = 0;  // uses ahead among which the file's next records are
};

}  // namespace spillway::trainer
