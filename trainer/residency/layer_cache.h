// A device's slots for layers whose bytes live on the host or on a peer, which stands for it in what follows:
// a few layers are there at a time.
//
// `begin` has the device wait for the layer's bytes, and starts the copies of the layers that come next in
// the order of uses into slots that nobody uses. `end` starts the copy back of what was written. The host
// waits for nothing: one copy, or the computation, is queued behind another by marks. What was written and is
// not on the host yet stays in its slot until it is, whatever fails meanwhile.
//
// Thread-safety: one thread at a time, such as one that runs the forward and then autograd's of the device;
// layers in use at the same time are at most the slots. Ownership: owns slots and blocks. Errors: LibTorch's
// exceptions; `reserve` alone allocates device memory.
#pragma once
#include <map>

#include "trainer/plan/schedule.h"
#include "trainer/residency/copy_stream.h"
#include "trainer/residency/layer_block.h"

namespace spillway::trainer {

class LayerCache {
 public:
  LayerCache(at::Device device, uint32_t most_slots);
  ~LayerCache();
  LayerCache(const LayerCache&) = delete;

  void add(uint32_t layer, LayerBlock block, bool is_zero);
  void remove(uint32_t layer);  // its bytes are on the host, or are not wanted
  bool empty() const { return entries_.empty(); }
  const LayerBlock& block(uint32_t layer) const { return entries_.at(layer).block; }
  // All its numbers are zero, whatever the host's bytes are.
  bool is_zero(uint32_t layer) const { return entries_.at(layer).zero; }

  // As many slots as the layers that are here need. Nothing, where there are.
  void reserve();
  // The coming uses, again and again, of layers that are here. REQUIRES: reserve().
  void follow(std::vector<uint32_t> uses);

  // The layer's tensors have memory from `begin` until its last `end`. What is written between them must be
  // announced: it counts also where there is no `end`, because the pass was cut off.
  enum class Use : uint8_t { kRead, kWrite };
  void begin(uint32_t layer, Use use);
  enum class After : uint8_t { kKept, kWorthless };
  void end(uint32_t layer, After after);
  // Of a pass that was cut off: nothing is in use. No thread may compute with a layer any more.
  void let_go();

  void synchronise();  // waits until the host has all bytes and no copy is under way
  void forget();       // the host's bytes may change: no layer is on the device. REQUIRES: synchronise()
  void set_zero();     // all layers; what they were is lost

 private:
  struct Entry {
    LayerBlock block;
    bool zero = false;
    CopyStream::Mark written;  // the last copy to the host
  };
  struct Slot {
    at::Tensor memory;  // [bytes]
    std::optional<uint32_t> layer;
    uint32_t users = 0;
    bool changed = false;                    // the host has other bytes
    bool in_doubt = false;                   // `used` is not known: a pass was cut off
    CopyStream::Mark used, filled, written;  // the computation with it, the copies into it and out of it
  };

  Slot* slot_of(uint32_t layer);
  Slot* free_slot(uint32_t layer, const std::vector<uint32_t>& next);
  void fetch(Slot* slot, uint32_t layer);
  void clear(Slot* slot, uint32_t layer);
  void write_back(Slot* slot);
  CopyStream::Mark last_use(const Slot& slot) const;
  void fetch_next(std::optional<uint32_t> present);

  const at::Device device_;
  const uint32_t most_slots_;
  CopyStream &to_device_, &to_host_;
  std::map<uint32_t, Entry> entries_;
  std::vector<Slot> slots_;
  UseOrder order_;
};

}  // namespace spillway::trainer
