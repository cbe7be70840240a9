// The part of Spillway's LibTorch support that links no LibTorch (libspillway_plugin.so): it installs the
// shim built for the LibTorch in the process, and where there is none offers the two functions and the hooks
// of torch.cuda.memory.CUDAPluggableAllocator, which work with any version.
//
// Install before CUDA initialises, one of the two, once. Thread-safety: every function from any thread.
// Ownership: blocks belong to LibTorch until it frees them; nothing here is ever destroyed, because tensors
// may outlive static destruction. Errors: spillway_install() returns them; a request that is not served
// throws c10::OutOfMemoryError where the process has one of the known layout, else a std::bad_alloc, with the
// same text; the hooks throw std::exception; a free never throws. Units: bytes.
#pragma once
#include <cstddef>
#include <cstdint>
#include <functional>
#include <utility>

#include "spillway/spillway.h"

struct CUstream_st;

// c10::MempoolId_t and the filter that says whether a stream's requests go to the pool: the same types for
// the compiler, without their headers.
using SpillwayPoolId = std::pair<unsigned long long, unsigned long long>;
using SpillwayStreamFilter = std::function<bool(CUstream_st*)>;

extern "C" {
// Makes Spillway LibTorch's CUDA allocator through the shim of the version in the process, which is loaded
// only if it is the one. 0: done, or done before; else spillway_install_error() says why not and the native
// allocator stays.
SPILLWAY_API int spillway_install(void);
// Why the last spillway_install() of this process failed; "" if it did not.
SPILLWAY_API const char* spillway_install_error(void);

// For the core's strategy that lets another library have LibTorch's idle memory. The first loads the shim of
// the version in the process without installing it, 0: it is there. The second gives the native allocator's
// idle memory back to the driver, 0: done; it takes that allocator's locks and waits for the devices.
SPILLWAY_API int spillway_framework_ready(void);
SPILLWAY_API int spillway_framework_empty_cache(void);
// What the native allocator holds of a device, what of it is in use, and what it could give back (idle, and
// not part of a segment that is in use elsewhere); 0: told, else it has not been used, or another stands in
// for it. Takes that allocator's lock.
SPILLWAY_API int spillway_framework_memory(int device, uint64_t* held, uint64_t* in_use,
                                           uint64_t* releasable);

// The native allocator's memory of a device in full, at the failure of a request, on the thread whose request
// it is: bytes in use as asked for, what rounding added, what was freed while other streams still use it,
// what is idle where any request may have it, and what is idle in private pools; and the part of the device
// that set_per_process_memory_fraction leaves it, 1 without. 0: told. Another thread that asks meanwhile is
// refused. The last tells how many requests it has given its cache back for, to ask again, and how many bytes
// it has ever got from the driver.
typedef struct SpillwayFrameworkState {
  uint64_t requested, rounding, pending, idle, pools_idle;
  double fraction;
} SpillwayFrameworkState;
SPILLWAY_API int spillway_framework_state(int device, SpillwayFrameworkState* state);
SPILLWAY_API int spillway_framework_retries(int device, uint64_t* retries, uint64_t* got_bytes);

// For CUDAPluggableAllocator(path, "spillway_plugin_allocate", "spillway_plugin_free").
SPILLWAY_API void* spillway_plugin_allocate(size_t bytes, int device, CUstream_st* stream);
SPILLWAY_API void spillway_plugin_free(void* address, size_t bytes, int device, CUstream_st* stream);

// For the setters of the same names. Without record_stream a block may be reused while another stream still
// uses it, and without the pools a captured graph's memory is not its own: set all that the version has.
SPILLWAY_API void spillway_plugin_init(int devices);
SPILLWAY_API void spillway_plugin_reset(void);
SPILLWAY_API void spillway_plugin_memory_fraction(double fraction, int device);
SPILLWAY_API void* spillway_plugin_base_alloc(void* address, size_t* bytes);
SPILLWAY_API void spillway_plugin_record_stream(void* address, CUstream_st* stream);
SPILLWAY_API void spillway_plugin_begin_allocate_to_pool(int device, SpillwayPoolId pool,
                                                         SpillwayStreamFilter filter);
SPILLWAY_API void spillway_plugin_end_allocate_to_pool(int device, SpillwayPoolId pool);
SPILLWAY_API void spillway_plugin_release_pool(int device, SpillwayPoolId pool);
}
