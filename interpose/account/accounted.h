// The driver's own functions, with what they take and free on the account of native.h. Only what allocates,
// frees or tells the room is looked at: every other call is the driver's at once.
//
// Thread-safety: any thread. An accounted function that the driver calls from inside another is not counted
// twice.
#pragma once
#include <type_traits>

#include "interpose/account/native.h"
#include "interpose/account/native_contexts.h"
#include "interpose/account/native_graphs.h"
#include "interpose/account/native_pages.h"
#include "interpose/account/native_pools.h"
#include "interpose/hooks/captures.h"
#include "interpose/hooks/driver_table.h"
#include "interpose/hooks/functions.h"

namespace spillway::interpose {

class Accounting {
 public:
  Accounting() : outermost_(!under_way_) { under_way_ = true; }
  ~Accounting() {
    if (outermost_) under_way_ = false;
  }
  Accounting(const Accounting&) = delete;
  Accounting& operator=(const Accounting&) = delete;
  bool outermost() const { return outermost_; }

 private:
  bool outermost_;
  [[gnu::tls_model("initial-exec")]] static inline thread_local bool under_way_ = false;
};

// What a function makes, which it answers by its first argument.
constexpr Native makes(Function function) {
  switch (function) {
    case Function::cuMemAlloc:
    case Function::cuMemAllocPitch:
    case Function::cuMemAllocManaged:
    case Function::cuMemAllocAsync:
    case Function::cuMemAllocAsync_ptsz:
    case Function::cuMemAllocFromPoolAsync:
    case Function::cuMemAllocFromPoolAsync_ptsz:
      return Native::kAddress;
    case Function::cuArrayCreate:
    case Function::cuArray3DCreate:
    case Function::cuMipmappedArrayCreate:
      return Native::kArray;
    case Function::cuMemCreate:
      return Native::kHandle;
    default:
      return Native::kNone;
  }
}

// What a function frees, which its first argument names.
constexpr Native frees(Function function) {
  switch (function) {
    case Function::cuMemFree:
    case Function::cuMemFreeAsync:
    case Function::cuMemFreeAsync_ptsz:
      return Native::kAddress;
    case Function::cuArrayDestroy:
    case Function::cuMipmappedArrayDestroy:
      return Native::kArray;
    default:
      return Native::kNone;
  }
}

template <class Key>
uint64_t key_of(Key key) {
  if constexpr (std::is_pointer_v<Key>)
    return reinterpret_cast<uint64_t>(key);
  else
    return static_cast<uint64_t>(key);
}

// In a capture, memory is a node of the graph's: the driver takes it for the launches.
inline bool is_captured(CUstream stream) {
  if (captures_under_way() == 0 || real().cuStreamIsCapturing == nullptr) return false;
  CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
  return real().cuStreamIsCapturing(stream, &status) == CUDA_SUCCESS &&
         status != CU_STREAM_CAPTURE_STATUS_NONE;
}

template <Function function>
struct Taken {
  template <class... Parameters>
  static Asked of(Parameters... arguments) {
    return Asks<function>::of(arguments...);
  }
};
template <bool kPerThread>
struct TakenInOrder {
  static CUstream stream_of(CUstream stream) {
    return kPerThread && stream == nullptr ? CU_STREAM_PER_THREAD : stream;
  }
  static Asked of(CUdeviceptr*, size_t bytes, CUstream stream) {
    return asked({.bytes = bytes, .in_pool = true}, stream_of(stream));
  }
  static Asked of(CUdeviceptr*, size_t bytes, CUmemoryPool pool, CUstream stream) {
    return asked(in_pool(bytes, key_of(pool)), stream_of(stream));
  }

 private:
  static Asked asked(const Asked& outside, CUstream stream) {
    if (!is_captured(stream)) return outside;
    note_graph_memory(outside.device >= 0 ? outside.device : current_device());
    return {};
  }
};
template <>
struct Taken<Function::cuMemAllocAsync> : TakenInOrder<false> {};
template <>
struct Taken<Function::cuMemAllocAsync_ptsz> : TakenInOrder<true> {};
template <>
struct Taken<Function::cuMemAllocFromPoolAsync> : TakenInOrder<false> {};
template <>
struct Taken<Function::cuMemAllocFromPoolAsync_ptsz> : TakenInOrder<true> {};

template <Function function, class Out, class... Parameters>
CUresult take(CUresult (*real_function)(Out*, Parameters...), Out* out,
              std::type_identity_t<Parameters>... arguments) {
  const Draw draw(out == nullptr ? Asked{} : Taken<function>::of(out, arguments...));
  if (draw.refused()) return CUDA_ERROR_OUT_OF_MEMORY;
  const CUresult result = real_function(out, arguments...);
  if constexpr (begins_with(name_of(function), "cuMemAllocAsync") ||
                begins_with(name_of(function), "cuMemAllocFromPoolAsync"))
    note_pool_used();
  if (result == CUDA_SUCCESS && out != nullptr)
    draw.keep(makes(function), key_of(*out));
  else
    draw.take_back();
  return result;
}

template <Function function, class Key, class... Parameters>
CUresult free(CUresult (*real_function)(Key, Parameters...), Key key,
              std::type_identity_t<Parameters>... arguments) {
  const Return freed(frees(function), key_of(key));
  const CUresult result = real_function(key, arguments...);
  if (result == CUDA_SUCCESS) freed.finish();
  return result;
}

// What else changes the account, or is told by it, after the driver has done it.
template <Function function>
struct Changes {
  static constexpr bool kAny = false;
};

// The arguments of cuGraphAddNode, in both its versions.
inline void note_node(CUgraphNode*, CUgraph, const CUgraphNode*, size_t, const CUgraphNodeParams* made) {
  if (made != nullptr && made->type == CU_GRAPH_NODE_TYPE_MEM_ALLOC)
    note_graph_memory(made->alloc.poolProps.location.id);
}
inline void note_node(CUgraphNode* out, CUgraph graph, const CUgraphNode* before, const CUgraphEdgeData*,
                      size_t count, const CUgraphNodeParams* made) {
  note_node(out, graph, before, count, made);
}

// What may make the driver reserve memory for graphs, or give it back.
constexpr bool changes_graph_memory(Function function) {
  return begins_with(name_of(function), "cuGraphLaunch") || begins_with(name_of(function), "cuGraphUpload") ||
         begins_with(name_of(function), "cuGraphInstantiateWithParams") ||
         function == Function::cuDeviceGraphMemTrim;
}

#define SPILLWAY_CHANGES(name, parameters, ...) \
  template <>                                   \
  struct Changes<Function::name> {              \
    static constexpr bool kAny = true;          \
    static void after parameters {              \
      __VA_ARGS__;                              \
    }                                           \
  };

SPILLWAY_CHANGES(cuMemMap,
                 (CUdeviceptr address, size_t bytes, size_t, CUmemGenericAllocationHandle page,
                  unsigned long long),
                 page_mapped(address, bytes, page))
SPILLWAY_CHANGES(cuMemRetainAllocationHandle, (const CUmemGenericAllocationHandle* page, const void*),
                 if (page != nullptr) page_retained(*page))
SPILLWAY_CHANGES(cuGraphAddMemAllocNode,
                 (CUgraphNode*, CUgraph, const CUgraphNode*, size_t, const CUDA_MEM_ALLOC_NODE_PARAMS* made),
                 if (made != nullptr) note_graph_memory(made->poolProps.location.id))
SPILLWAY_CHANGES(cuDeviceGetDefaultMemPool, (const CUmemoryPool* pool, CUdevice device),
                 if (pool != nullptr) note_pool(key_of(*pool), device))
SPILLWAY_CHANGES(cuMemPoolCreate, (const CUmemoryPool* pool, const CUmemPoolProps* made),
                 if (pool != nullptr && made != nullptr)
                     note_pool(key_of(*pool),
                               made->location.type == CU_MEM_LOCATION_TYPE_DEVICE ? made->location.id : -1))
SPILLWAY_CHANGES(cuDevicePrimaryCtxRetain, (const CUcontext* context, CUdevice device),
                 if (context != nullptr) note_primary_context(*context, device))
SPILLWAY_CHANGES(cuDevicePrimaryCtxRelease, (CUdevice device), look_at_primary_context(device))
SPILLWAY_CHANGES(cuDevicePrimaryCtxReset, (CUdevice device), look_at_primary_context(device))
SPILLWAY_CHANGES(cuCtxDestroy, (CUcontext context), context_gone(context))
SPILLWAY_CHANGES(cuMemGetInfo, (size_t* free, size_t* total),
                 tell_within_budget(free, total, current_device()))
SPILLWAY_CHANGES(cuDeviceTotalMem, (size_t* total, CUdevice device),
                 tell_within_budget(nullptr, total, device))
#undef SPILLWAY_CHANGES

template <Function function, class... Parameters>
CUresult account(CUresult (*real_function)(Parameters...), std::type_identity_t<Parameters>... arguments) {
  if constexpr (makes(function) != Native::kNone) {
    return take<function>(real_function, arguments...);
  } else if constexpr (frees(function) != Native::kNone) {
    return free<function>(real_function, arguments...);
  } else {
    const CUresult result = real_function(arguments...);
    if (result == CUDA_SUCCESS && native_budget() != nullptr) Changes<function>::after(arguments...);
    return result;
  }
}

inline CUresult release_page(CUresult (*real_function)(CUmemGenericAllocationHandle),
                             CUmemGenericAllocationHandle page) {
  const uint64_t serial = page_serial(page);
  const CUresult result = real_function(page);
  if (result == CUDA_SUCCESS && serial != 0) page_released(page, serial);
  return result;
}

inline CUresult unmap_range(CUresult (*real_function)(CUdeviceptr, size_t), CUdeviceptr address,
                            size_t bytes) {
  const Unmapping unmapping(address, bytes);
  const CUresult result = real_function(address, bytes);
  if (result == CUDA_SUCCESS) unmapping.finish();
  return result;
}

constexpr bool is_accounted(Function function) {
  return makes(function) != Native::kNone || frees(function) != Native::kNone ||
         function == Function::cuMemRelease || function == Function::cuMemUnmap ||
         function == Function::cuMemPoolDestroy;
}

template <Function function, class... Parameters>
CUresult accounted(CUresult (*real_function)(Parameters...), std::type_identity_t<Parameters>... arguments) {
  if constexpr (is_accounted(function) || Changes<function>::kAny) {
    const Accounting accounting;
    if (!accounting.outermost()) return real_function(arguments...);
    if constexpr (function == Function::cuMemRelease)
      return release_page(real_function, arguments...);
    else if constexpr (function == Function::cuMemUnmap)
      return unmap_range(real_function, arguments...);
    else if constexpr (function == Function::cuMemPoolDestroy)
      return destroy_pool(arguments..., real_function);
    else
      return account<function>(real_function, arguments...);
  } else if constexpr (begins_with(name_of(function), "cuGraphAddNode")) {
    const CUresult result = real_function(arguments...);
    if (result == CUDA_SUCCESS) note_node(arguments...);
    return result;
  } else if constexpr (changes_graph_memory(function)) {
    const CUresult result = real_function(arguments...);
    graph_memory_may_have_changed();
    return result;
  } else {
    return real_function(arguments...);
  }
}

}  // namespace spillway::interpose
