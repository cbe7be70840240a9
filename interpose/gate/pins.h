// Memory that the program hands on by the driver, for other processes, NCCL or RDMA: Spillway must not move
// it, because who got it knows physical pages and not addresses.
//
// Thread-safety: any thread. What is retained as a handle is free to move again when that handle is released,
// unless it was exported or mapped meanwhile; that, and what was given away as a descriptor of an address
// range or bound to a multicast object, never is. Nothing is kept before Spillway's core is loaded: until
// then it holds none of the program's memory.
#pragma once
#include <cstdint>

#include "driver/table.h"
#include "interpose/hooks/functions.h"

namespace spillway::interpose {

void pin_handle(CUmemGenericAllocationHandle handle, uint64_t address);
void unpin_handle(CUmemGenericAllocationHandle handle);
// Whoever has it now keeps it when the handle is released.
void keep_pinned(CUmemGenericAllocationHandle handle);
void pin_range(uint64_t address, uint64_t bytes);

// For a registration of what may be blocks of Spillway's; false: nothing to pin. The pin is then the
// region's, or with a null region nobody's: it is taken back.
bool pin_block(uint64_t address, uint64_t bytes);
void unpin_block(uint64_t address);
void pin_belongs_to(const void* region, uint64_t address);
// The address that the region has pinned, which is nobody's then; 0: none.
uint64_t take_pin_of(const void* region);

template <Function function>
struct Pins {
  template <class... Parameters>
  static void of(Parameters...) {}
};

template <>
struct Pins<Function::cuMemRetainAllocationHandle> {
  static void of(const CUmemGenericAllocationHandle* handle, const void* address) {
    if (handle != nullptr) pin_handle(*handle, reinterpret_cast<uint64_t>(address));
  }
};

template <>
struct Pins<Function::cuMemRelease> {
  static void of(CUmemGenericAllocationHandle handle) { unpin_handle(handle); }
};

template <>
struct Pins<Function::cuMemExportToShareableHandle> {
  static void of(const void*, CUmemGenericAllocationHandle handle, CUmemAllocationHandleType,
                 unsigned long long) {
    keep_pinned(handle);
  }
};

template <>
struct Pins<Function::cuMemMap> {
  static void of(CUdeviceptr, size_t, size_t, CUmemGenericAllocationHandle handle, unsigned long long) {
    keep_pinned(handle);
  }
};

template <>
struct Pins<Function::cuMulticastBindMem> {
  static void of(CUmemGenericAllocationHandle, size_t, CUmemGenericAllocationHandle handle, size_t, size_t,
                 unsigned long long) {
    keep_pinned(handle);
  }
};

template <>
struct Pins<Function::cuMulticastBindMem_v2> {
  static void of(CUmemGenericAllocationHandle, CUdevice, size_t, CUmemGenericAllocationHandle handle, size_t,
                 size_t, unsigned long long) {
    keep_pinned(handle);
  }
};

template <>
struct Pins<Function::cuMulticastBindAddr_v2> {
  static void of(CUmemGenericAllocationHandle, CUdevice, size_t, CUdeviceptr address, size_t bytes,
                 unsigned long long) {
    pin_range(address, bytes);
  }
};

template <>
struct Pins<Function::cuMulticastBindAddr> {
  static void of(CUmemGenericAllocationHandle, size_t, CUdeviceptr address, size_t bytes,
                 unsigned long long) {
    pin_range(address, bytes);
  }
};

template <>
struct Pins<Function::cuMemGetHandleForAddressRange> {
  static void of(const void*, CUdeviceptr address, size_t bytes, CUmemRangeHandleType, unsigned long long) {
    pin_range(address, bytes);
  }
};

}  // namespace spillway::interpose
