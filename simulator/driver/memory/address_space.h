// Device addresses: one window of the process's addresses, handed out as reservations, and what is mapped
// there. The CPU can use no address of it but those of host pages that are mapped for it. In computing mode a
// second window of the same size, at a constant distance, shows the bytes of the mapped pages to the host.
//
// Thread-safety: none of its own; used under the simulator's lock. Ownership: owns the windows; pages are
// PhysicalMemory's. Errors: CUresult as the driver's. Units: bytes.
#pragma once
#include <cuda.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <map>

#include "simulator/driver/memory/physical.h"
#include "simulator/driver/process/referee.h"

namespace spillway::simulator {

struct GraphRange;
struct Pool;

struct Reservation {
  uint64_t bytes = 0;
  bool internal = false;  // of cuMemAlloc: not the program's
  Site site = nullptr;
};

struct Mapping {
  uint64_t bytes = 0;
  Page* page = nullptr;
  uint32_t readable = 0, writable = 0;          // a bit per device
  bool allocation = false;                      // of cuMemAlloc
  bool imported = false;                        // of cuIpcOpenMemHandle: not for the program to free
  Pool* pool = nullptr;                         // of cuMemAllocAsync
  std::shared_ptr<GraphRange> range = nullptr;  // of an allocation node: its addresses outlive the mapping
  CUmemAccess_flags host = CU_MEM_ACCESS_FLAGS_PROT_NONE;   // the CPU's right, at the device address
  CUmemAccess_flags shown = CU_MEM_ACCESS_FLAGS_PROT_NONE;  // of it, what the system knows
  bool aliased = false;
  bool remote = false;           // some device uses it that does not have it
  uint64_t requested_bytes = 0;  // of an allocation
  Use use = {};
  Site site = nullptr;
};

class AddressSpace {
 public:
  using Reservations = std::map<CUdeviceptr, Reservation>;
  using Mappings = std::map<CUdeviceptr, Mapping>;

  // Takes `bytes` of addresses, or as many as the system gives; false if it gives hardly any.
  bool open(uint64_t bytes, bool with_alias);

  bool contains(CUdeviceptr address) const { return address >= base_ && address < base_ + bytes_; }
  ptrdiff_t alias_offset() const { return alias_offset_; }
  void* alias(CUdeviceptr address) const { return reinterpret_cast<void*>(address + alias_offset_); }

  // A free range, at `wanted` if that is free. 0: there is none.
  CUdeviceptr reserve(uint64_t bytes, uint64_t alignment, CUdeviceptr wanted, const Reservation& reservation);
  // Forgets a reservation that has no mapping.
  void unreserve(Reservations::iterator reservation);
  Reservations::iterator reservation_of(CUdeviceptr address);
  bool within_reservation(CUdeviceptr address, uint64_t bytes);

  // The mapping that holds an address; end() if none.
  Mappings::iterator mapping_of(CUdeviceptr address);
  // True if [address, address + bytes) is whole mappings without a hole.
  bool whole_mappings(CUdeviceptr address, uint64_t bytes);
  bool overlaps(CUdeviceptr address, uint64_t bytes);
  Mapping& add(CUdeviceptr address, const Mapping& mapping);
  Mappings::iterator remove(Mappings::iterator mapping);
  // Shows or hides the bytes at the alias, and at the address itself where the CPU may use them, after the
  // access rights changed. Out of memory: too many mappings.
  CUresult apply_access(Mappings::iterator mapping);

  // Whether a device uses memory that is not its own, by access rights to a mapping. Without the lock, too.
  bool any_remote() const { return remote_.load(std::memory_order_relaxed) != 0; }

  Reservations& reservations() { return reservations_; }
  Mappings& mappings() { return mappings_; }

 private:
  CUdeviceptr take(uint64_t bytes, uint64_t alignment, CUdeviceptr wanted);
  void give(CUdeviceptr address, uint64_t bytes);
  void count_remote(Mapping& mapping, bool remote);
  CUresult apply_host_access(CUdeviceptr address, Mapping& entry);

  uint64_t base_ = 0, bytes_ = 0;
  ptrdiff_t alias_offset_ = 0;
  std::map<CUdeviceptr, uint64_t> free_;
  Reservations reservations_;
  Mappings mappings_;
  std::atomic<uint64_t> remote_{0};  // mappings
};

}  // namespace spillway::simulator
