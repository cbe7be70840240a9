// The way of every hooked call: counted, passed on, and where the driver is short of memory given to the
// rescue, which may try it again.
//
// Thread-safety: any thread. What is called from inside a hooked call on the same thread, by the driver or by
// Spillway itself, is passed on, and only what it takes or frees is counted.
#pragma once
#include <type_traits>

#include "interpose/account/accounted.h"
#include "interpose/gate/gate.h"
#include "interpose/gate/legacy_handles.h"
#include "interpose/gate/pins.h"
#include "interpose/hooks/allocation_size.h"
#include "interpose/hooks/captures.h"
#include "interpose/hooks/driver_table.h"
#include "interpose/hooks/functions.h"
#include "interpose/hooks/inside.h"
#include "interpose/hooks/marks.h"
#include "interpose/hooks/streams.h"
#include "interpose/hooks/unknown_symbols.h"
#include "interpose/join_ledger.h"
#include "interpose/newer_runtime.h"
#include "interpose/process.h"
#include "interpose/replace.h"
#include "interpose/rescue.h"

namespace spillway::interpose {

constexpr bool is_launch(Function function) {
  return begins_with(name_of(function), "cuLaunch") || begins_with(name_of(function), "cuGraphLaunch");
}

constexpr bool finds_functions(Function function) {
  return begins_with(name_of(function), "cuGetProcAddress");
}

// Functions that only tell what the driver knows, and are called many times for each launch: they take no
// memory, so that nothing is done after them.
constexpr bool only_tells(Function function) {
  for (const char* start :
       {"cuCtxGetCurrent", "cuCtxGetDevice", "cuDeviceGetAttribute", "cuDevicePrimaryCtxGetState",
        "cuDriverGetVersion", "cuPointerGetAttribute", "cuStreamGetCaptureInfo", "cuStreamIsCapturing"})
    if (begins_with(name_of(function), start)) return true;
  return false;
}

// Puts the hook in the place of what cuGetProcAddress found.
inline void hook_found(const char* symbol, void** found, int version, cuuint64_t flags,
                       CUdriverProcAddressQueryResult* = nullptr) {
  if (symbol == nullptr || found == nullptr || *found == nullptr) return;
  const bool per_thread = (flags & CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM) != 0;
  void* const hook = hook_for(*found, symbol, version, per_thread);
  *found = hook != nullptr ? hook : stub_for(*found, symbol, version);
}

template <Function function>
[[gnu::always_inline]] inline void count() {
  Counter::add(is_launch(function) ? &CallCounts::launches : &CallCounts::driver_calls);
}

// The driver's own, through the gate where it may touch device memory.
template <Function function, class... Parameters>
CUresult pass(CUresult (*real_function)(Parameters...), std::type_identity_t<Parameters>... arguments) {
  watch_streams<function>(arguments...);
  [[maybe_unused]] const std::conditional_t<is_gated(function), Passage, NoPassage> passage;
  const CUresult result = accounted<function>(real_function, arguments...);
  // Before the gate can close behind this call: what it began or handed on is known then.
  watch_captures<function>(result);
  if (result == CUDA_SUCCESS) Pins<function>::of(arguments...);
  return result;
}

// Not inlined: no part of the way of a call that succeeds.
template <Function function, class... Parameters>
[[gnu::noinline, gnu::cold]] CUresult serve_shortage(CUresult (*real_function)(Parameters...),
                                                     std::type_identity_t<Parameters>... arguments) {
  auto again = [&] { return pass<function>(real_function, arguments...); };
  const Shortage shortage{function, Asks<function>::of(arguments...),
                          is_accounted(function) && was_over_limit()};
  return rescue(shortage, [](void* context) { return (*static_cast<decltype(again)*>(context))(); }, &again);
}

template <Function function, class... Parameters>
[[gnu::always_inline]] inline CUresult call(CUresult (*real_function)(Parameters...),
                                            std::type_identity_t<Parameters>... arguments) {
  if (real_function == nullptr) [[unlikely]]
    return real().cuInit == nullptr ? CUDA_ERROR_NO_DEVICE : CUDA_ERROR_NOT_FOUND;
  if (Inside::now()) return accounted<function>(real_function, arguments...);
  if constexpr (begins_an_use(function)) {
    replace_if_due();
    join_ledger_once();
  }
  if constexpr (only_tells(function)) {
    count<function>();
    const CUresult result = real_function(arguments...);
    if constexpr (function == Function::cuDriverGetVersion) {
      if (result == CUDA_SUCCESS) compare_runtime(__builtin_return_address(0), arguments...);
    }
    return result;
  }
  const Inside inside;
  count<function>();
  mark_before<function>(arguments...);
  const CUresult result = pass<function>(real_function, arguments...);
  mark_work<function>(result, arguments...);
  if constexpr (finds_functions(function)) {
    if (result == CUDA_SUCCESS) hook_found(arguments...);
    compare_runtime(arguments...);
  }
  if (result == CUDA_ERROR_INVALID_VALUE) [[unlikely]]
    LegacyHandles<function>::refused(arguments...);
  if (result == CUDA_ERROR_OUT_OF_MEMORY) [[unlikely]]
    return serve_shortage<function>(real_function, arguments...);
  return result;
}

}  // namespace spillway::interpose
