// Legacy sharing between processes: memory of cuMemAlloc, and events, through handles that are plain bytes.
#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <string>

#include "simulator/driver/entry/call.h"
#include "simulator/driver/memory/memory.h"
#include "simulator/driver/memory/share.h"

namespace spillway::simulator {
namespace {

// What is in a handle: where the page is in a file that the maker holds open, or which event it is.
struct Handle {
  static constexpr uint64_t kMemory = 0x314d454d43504953,
                            kEvent = 0x31564e4543504953;  // "SIPCMEM1", "SIPCNEV1"
  uint64_t magic = 0;
  ProcessIdentity maker;
  uint64_t descriptor = 0, offset = 0;  // of memory
  uint64_t bytes = 0;                   // as asked for
  uint64_t event = 0;

  bool same_memory(const Handle& other) const {
    return maker.id == other.maker.id && maker.start == other.maker.start && descriptor == other.descriptor &&
           offset == other.offset;
  }
};
static_assert(sizeof(Handle) <= sizeof(CUipcMemHandle) && sizeof(CUipcMemHandle) == sizeof(CUipcEventHandle));

template <typename Raw>
void encode(const Handle& handle, Raw* out) {
  std::memset(out, 0, sizeof *out);
  std::memcpy(out, &handle, sizeof handle);
}

template <typename Raw>
Handle decode(const Raw& raw) {
  Handle handle;
  std::memcpy(static_cast<void*>(&handle), &raw, sizeof handle);
  return handle;
}

// CUDA_SUCCESS if another process that lives made the handle.
CUresult check_maker(const Handle& handle, uint64_t magic) {
  const ProcessIdentity self = this_process();
  if (handle.magic != magic) return CUDA_ERROR_INVALID_VALUE;
  if (handle.maker.id == self.id && handle.maker.start == self.start) return CUDA_ERROR_INVALID_CONTEXT;
  return is_alive(handle.maker) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
}

// Memory of other processes that this one has open, by its address here.
struct Opened {
  Handle handle;
  unsigned count = 0;
};
std::map<CUdeviceptr, Opened>& opened() {
  static auto* const made = new std::map<CUdeviceptr, Opened>;
  return *made;
}

// On whole machines without it, as Tegra's.
bool has_ipc() {
  return machine().config.driver.legacy_ipc;
}

CUresult name_memory(CUdeviceptr address, CUipcMemHandle* out) {
  const auto mapping = machine().space.mapping_of(address);
  if (mapping == machine().space.mappings().end()) return CUDA_ERROR_INVALID_VALUE;
  const Mapping& entry = mapping->second;
  if (!is_legacy_shareable(entry)) return CUDA_ERROR_INVALID_VALUE;
  const int file = describe_in_file(*entry.page);
  if (file < 0) return CUDA_ERROR_OPERATING_SYSTEM;
  entry.page->named = true;
  encode({.magic = Handle::kMemory,
          .maker = this_process(),
          .descriptor = static_cast<uint64_t>(file),
          .offset = entry.page->offset,
          .bytes = entry.requested_bytes},
         out);
  return CUDA_SUCCESS;
}

CUresult import_named(const Handle& handle, Page** out) {
  const std::string path =
      "/proc/" + std::to_string(handle.maker.id) + "/fd/" + std::to_string(handle.descriptor);
  const int file = open(path.c_str(), O_RDWR | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
  if (file < 0) return CUDA_ERROR_INVALID_HANDLE;
  CUresult result = CUDA_ERROR_INVALID_HANDLE;
  if (handle.offset <= INT64_MAX && lseek(file, static_cast<off_t>(handle.offset), SEEK_SET) >= 0)
    result = import_page(file, out);
  close(file);
  return result == CUDA_ERROR_INVALID_VALUE ? CUDA_ERROR_INVALID_HANDLE : result;
}

CUresult open_memory(const Handle& handle, Site site, CUdeviceptr* out) {
  if (const CUresult result = check_maker(handle, Handle::kMemory); result != CUDA_SUCCESS) return result;
  const auto known = std::find_if(opened().begin(), opened().end(),
                                  [&](const auto& entry) { return entry.second.handle.same_memory(handle); });
  if (known != opened().end()) {
    ++known->second.count;
    *out = known->first;
    return CUDA_SUCCESS;
  }
  Page* page = nullptr;
  if (const CUresult result = import_named(handle, &page); result != CUDA_SUCCESS) return result;
  // A page of this process's own is found where a handle names one of its threads.
  const bool valid = !page->charged && page->device && handle.bytes > 0 && handle.bytes <= page->bytes;
  const CUresult result =
      valid ? map_imported(page, handle.bytes, site, out) : CUresult{CUDA_ERROR_INVALID_HANDLE};
  --page->references;
  if (result != CUDA_SUCCESS) {
    machine().physical->drop_if_unused(page);
    return result;
  }
  opened()[*out] = {handle, 1};
  return CUDA_SUCCESS;
}

}  // namespace
}  // namespace spillway::simulator

using namespace spillway::simulator;

CUresult cuIpcGetMemHandle(CUipcMemHandle* pHandle, CUdeviceptr dptr) {
  SPILLWAY_SIM_ENTER(cuIpcGetMemHandle);
  if (!has_ipc()) return CUDA_ERROR_NOT_SUPPORTED;
  return pHandle ? name_memory(dptr, pHandle) : CUDA_ERROR_INVALID_VALUE;
}

CUresult cuIpcOpenMemHandle(CUdeviceptr* pdptr, CUipcMemHandle handle, unsigned int Flags) {
  SPILLWAY_SIM_ENTER(cuIpcOpenMemHandle);
  if (!has_ipc()) return CUDA_ERROR_NOT_SUPPORTED;
  if (!pdptr || (Flags & ~CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS)) return CUDA_ERROR_INVALID_VALUE;
  if (!current_context()) return CUDA_ERROR_INVALID_CONTEXT;
  const CUresult result = open_memory(decode(handle), call.site(), pdptr);
  if (result != CUDA_SUCCESS) return result;
  const Device* owner = sim.space.mapping_of(*pdptr)->second.page->device;
  if (owner != current_context()->device && (Flags & CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS))
    current_context()->device->peers |= uint32_t{1} << owner->ordinal;
  return CUDA_SUCCESS;
}

CUresult cuIpcCloseMemHandle(CUdeviceptr dptr) {
  SPILLWAY_SIM_ENTER(cuIpcCloseMemHandle);
  const auto found = opened().find(dptr);
  if (found == opened().end()) return CUDA_ERROR_INVALID_VALUE;
  if (--found->second.count > 0) return CUDA_SUCCESS;
  opened().erase(found);
  const auto mapping = sim.space.mappings().find(dptr);
  sim.clock.wait_until(mapping->second.use.end);
  free_device(mapping, call.site());
  return CUDA_SUCCESS;
}

CUresult cuIpcGetEventHandle(CUipcEventHandle* pHandle, CUevent event) {
  SPILLWAY_SIM_ENTER(cuIpcGetEventHandle);
  if (!has_ipc()) return CUDA_ERROR_NOT_SUPPORTED;
  const Event* found = find_event(event);
  if (!pHandle) return CUDA_ERROR_INVALID_VALUE;
  if (!found || !(found->flags & CU_EVENT_INTERPROCESS)) return CUDA_ERROR_INVALID_HANDLE;
  encode({.magic = Handle::kEvent, .maker = spillway::this_process(), .event = found->id}, pHandle);
  return CUDA_SUCCESS;
}

// What the maker had submitted before the event has been done, as all work is when it is submitted: here the
// event is always over.
CUresult cuIpcOpenEventHandle(CUevent* phEvent, CUipcEventHandle handle) {
  SPILLWAY_SIM_ENTER(cuIpcOpenEventHandle);
  if (!has_ipc()) return CUDA_ERROR_NOT_SUPPORTED;
  if (!phEvent) return CUDA_ERROR_INVALID_VALUE;
  if (!current_context()) return CUDA_ERROR_INVALID_CONTEXT;
  if (const CUresult result = check_maker(decode(handle), Handle::kEvent); result != CUDA_SUCCESS)
    return result;
  auto event = std::make_unique<Event>();
  event->id = sim.next_id++;
  event->context = current_context();
  event->flags = CU_EVENT_INTERPROCESS | CU_EVENT_DISABLE_TIMING;
  event->recorded = true;
  event->site = call.site();
  *phEvent = reinterpret_cast<CUevent>(event.get());
  sim.event_handles.insert(event.get());
  sim.events.emplace(event->id, std::move(event));
  return CUDA_SUCCESS;
}
