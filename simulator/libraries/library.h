// What stand-ins for libraries with handles have in common: how a failure of the runtime is called, handles
// that hold memory of the card, launches, and opaque things that are only made and deleted.
//
// Thread-safety: as the libraries': one handle, one thread at a time. Ownership: the program destroys what it
// made. Errors: the library's statuses.
#pragma once
#include <cuda_runtime_api.h>

#include <memory>
#include <new>

#include "simulator/libraries/computation.h"
#include "simulator/libraries/handle_memory.h"
#include "simulator/libraries/refusal.h"

namespace spillway::stand_in {

template <class Status>
struct Library {
  const char *code_row, *handle_row;  // of simulator/cards/overheads.inc
  Status success, invalid, not_initialized, no_host_memory, no_memory, failed;
  Status not_supported;
  const char* not_supported_name;

  constexpr Status status_of(cudaError_t error) const {
    switch (error) {
      case cudaSuccess:
        return success;
      case cudaErrorMemoryAllocation:
        return no_memory;
      case cudaErrorInitializationError:
      case cudaErrorInsufficientDriver:
      case cudaErrorNoDevice:
        return not_initialized;
      default:
        return failed;
    }
  }

  template <class Handle>
  Status launch(Handle* handle, const Computation& computation) const {
    return handle == nullptr ? not_initialized : status_of(computation.launch(handle->stream));
  }

  Status refuse(const char* function, const void* caller) const {
    say_refused(function, not_supported_name, caller);
    return not_supported;
  }

  template <class Opaque>
  Status create(Opaque** made) const {
    if (made == nullptr) return invalid;
    *made = new (std::nothrow) Opaque;
    return *made == nullptr ? no_host_memory : success;
  }

  template <class Opaque>
  Status destroy(Opaque* made) const {
    delete made;
    return success;
  }

  // With what the library's code and the handle take of the current device.
  template <class Handle>
  Status create_handle(Handle** out) const {
    if (out == nullptr) return invalid;
    *out = nullptr;
    auto made = std::unique_ptr<Handle>(new (std::nothrow) Handle);
    if (made == nullptr) return no_host_memory;
    Status status = status_of(charge_code(code_row));
    if (status == success) status = status_of(made->memory.charge_row(handle_row));
    if (status == success) *out = made.release();
    return status;
  }
};

}  // namespace spillway::stand_in
