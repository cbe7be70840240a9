// One device's driver calls, as the heap needs them: counted, in the device's primary context, safe to make
// while some stream is being captured.
//
// Thread-safety: every member may be called from any thread; none is called under the heap's lock. Ownership:
// retains the device's primary context. Errors: CUresult; nothing is retried here.
#pragma once
#include <cuda.h>

#include <atomic>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "allocator/pages/copy_stream.h"
#include "allocator/pages/event_pool.h"
#include "allocator/pages/host_pages.h"
#include "allocator/tiers/tiers.h"
#include "allocator/tiling/arena.h"
#include "allocator/units.h"
#include "base/mutex.h"
#include "driver/mapping.h"
#include "driver/table.h"

namespace spillway {

class Device {
 public:
  // Null and a text when the device cannot be used. `unsupported`: it lacks what Spillway needs.
  static std::unique_ptr<Device> open(const driver::Table& table, DeviceId id, bool* unsupported,
                                      std::string* text);
  ~Device();
  Device(const Device&) = delete;
  Device& operator=(const Device&) = delete;

  // Makes the primary context current and the thread's capture mode relaxed for a scope: our calls belong to
  // nobody's graph.
  class Scope {
   public:
    explicit Scope(const Device& device);
    ~Scope();
    Scope(const Scope&) = delete;
    Scope& operator=(const Scope&) = delete;

   private:
    const Device& device_;
    bool pushed_ = false;
    bool mode_changed_ = false;
    CUstreamCaptureMode mode_ = CU_STREAM_CAPTURE_MODE_RELAXED;
  };

  DeviceId id() const { return id_; }
  bool is_context(CUcontext context) const { return context == context_; }
  uint64_t page_bytes() const { return page_bytes_; }
  uint64_t total_bytes() const { return total_bytes_; }
  uint64_t context_bytes() const { return context_bytes_; }  // in use when the device was opened
  // Whether contexts and libraries take memory of it by themselves, as they do of every real one.
  bool has_libraries() const { return has_libraries_; }
  uint64_t calls() const { return calls_.load(std::memory_order_relaxed); }
  std::string describe(CUresult result) const { return driver::describe(table_, result); }

  CUresult reserve(uint64_t bytes, AddressRange* out);
  CUresult release_range(AddressRange range);
  CUresult create(uint64_t bytes, CUmemGenericAllocationHandle* handle);
  CUresult release(CUmemGenericAllocationHandle handle);
  // Physical memory of another tier, `bytes` a multiple of page_bytes(). `peer`: for kPeer.
  CUresult create_elsewhere(Tier tier, DeviceId peer, uint64_t bytes, CUmemGenericAllocationHandle* handle);
  // Others whose memory this device, and all that were given access, can use as they use this one's.
  Peers find_peers() const;
  // Whether device `from`, whose atomic operations work on this one's memory, would lose them on that of
  // `to`.
  bool loses_atomics(CUdevice from, CUdevice to) const;
  CopyStream& copies() { return copies_; }
  // The device's clock now, whatever is queued; 0 where it cannot be read.
  uint64_t clock_us() { return clock_.time_us(); }
  // Pinned host memory, and back.
  CUresult allocate_host(uint64_t bytes, void** memory) { return table_.cuMemHostAlloc(memory, bytes, 0); }
  void free_host(void* memory) { table_.cuMemFreeHost(memory); }
  // An allocation of the driver's own, and back.
  CUresult allocate(uint64_t bytes, uint64_t* address);
  CUresult free(uint64_t address);
  // The page as a file descriptor, which the caller closes, and back.
  CUresult export_page(CUmemGenericAllocationHandle handle, int* descriptor);
  CUresult import_page(int descriptor, CUmemGenericAllocationHandle* handle);
  bool owns(CUmemGenericAllocationHandle handle);  // whether the page lies on this device
  // Access for another device, for what is mapped from now on and for what is at [address, address + bytes).
  void add_access(const CUmemAccessDesc& access) { access_.push_back(access); }
  bool gives_access(const CUmemAccessDesc& access) const;
  CUresult set_access(uint64_t address, uint64_t bytes, const CUmemAccessDesc& access);
  // Pages of one kind: all of them of the host, or none.
  CUresult map(uint64_t address, std::span<const driver::Page> pages);
  // With access for no other device.
  CUresult map_for_itself(uint64_t address, driver::Page page);
  CUresult unmap(uint64_t address, uint64_t bytes);
  // Free bytes of the device, whoever holds the rest; `fallback` when the driver does not say.
  uint64_t free_bytes(uint64_t fallback);

  bool capturing(StreamId stream);
  // Whether all that was queued on `stream` is done; false also where that cannot be asked.
  bool idle(StreamId stream);
  // An event after what is queued on `stream`. Null with an error when none could be recorded, as on
  // kStreamGone.
  CUevent record(StreamId stream, CUresult* result);
  CUresult query(CUevent event) { return table_.cuEventQuery(event); }
  CUresult wait(CUevent event) { return table_.cuEventSynchronize(event); }
  void put_back(CUevent event) { events_.put_back(event); }
  // Events between which time can be read.
  EventPool& timed_events() { return timed_events_; }
  // The same for all streams. Breaks a capture that runs on the device: see Drain::device.
  CUresult drain_all() { return table_.cuCtxSynchronize(); }

 private:
  Device(const driver::Table& table, DeviceId id)
      : table_(table),
        id_(id),
        events_(table, CU_EVENT_DISABLE_TIMING),
        timed_events_(table, CU_EVENT_DEFAULT),
        host_(table),
        copies_(table),
        clock_(table) {}
  CUresult start(bool* unsupported, std::string* text);
  bool all_reach(CUdevice peer) const;
  CUresult count(CUresult result) {
    calls_.fetch_add(1, std::memory_order_relaxed);
    return result;
  }

  const driver::Table& table_;
  DeviceId id_;
  CUdevice device_ = 0;
  CUcontext context_ = nullptr;
  CUmemAllocationProp properties_{};
  std::vector<CUmemAccessDesc> access_;  // guarded by the heap's mappings_mutex_
  uint64_t page_bytes_ = 0, total_bytes_ = 0, context_bytes_ = 0;
  std::atomic<uint64_t> calls_{0};
  EventPool events_, timed_events_;
  bool has_libraries_ = true;
  HostPages host_;
  CopyStream copies_, clock_;
};

}  // namespace spillway
