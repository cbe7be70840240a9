// Pages as file descriptors. The descriptor is the device's memory file, opened anew, with its position at
// the page; what the page is stands in a part of the file that no page uses. So a process that is handed the
// descriptor finds both, and maps the same bytes.
#include "simulator/driver/memory/share.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <string>

#include "simulator/driver/entry/call.h"

namespace spillway::simulator {
namespace {

constexpr off_t kTickets = off_t{1} << 59;
constexpr uint64_t kMagic = 0x5350494c4c504731;  // "SPILLPG1"

struct Ticket {
  uint64_t magic = 0, bytes = 0;
  int32_t location_type = 0, location_id = 0;
};

off_t ticket_place(uint64_t offset) {
  return kTickets + static_cast<off_t>(offset / kGranularity * sizeof(Ticket));
}

CUresult export_page(Page& page, int* out) {
  const int memory = describe_in_file(page);
  if (memory < 0) return CUDA_ERROR_OPERATING_SYSTEM;
  const int opened = open(("/proc/self/fd/" + std::to_string(memory)).c_str(), O_RDWR | O_CLOEXEC);
  if (opened < 0) return CUDA_ERROR_OPERATING_SYSTEM;
  if (lseek(opened, static_cast<off_t>(page.offset), SEEK_SET) < 0) {
    close(opened);
    return CUDA_ERROR_OPERATING_SYSTEM;
  }
  page.exported = true;
  *out = opened;
  return CUDA_SUCCESS;
}

// True if both descriptors are of the same file.
bool same_file(int a, int b) {
  struct stat first, second;
  return a >= 0 && fstat(a, &first) == 0 && fstat(b, &second) == 0 && first.st_ino == second.st_ino &&
         first.st_dev == second.st_dev;
}

// Reads what a descriptor stands for; false if it is no exported page.
bool read_ticket(int descriptor, Ticket& ticket, uint64_t& offset) {
  char name[64] = {};
  const std::string link = "/proc/self/fd/" + std::to_string(descriptor);
  if (readlink(link.c_str(), name, sizeof name - 1) < 0) return false;
  if (std::string(name).rfind("/memfd:spillway-device-", 0) != 0) return false;
  const off_t position = lseek(descriptor, 0, SEEK_CUR);
  if (position < 0 || position >= kTickets || static_cast<uint64_t>(position) % kGranularity) return false;
  offset = static_cast<uint64_t>(position);
  return pread(descriptor, &ticket, sizeof ticket, ticket_place(offset)) == sizeof ticket &&
         ticket.magic == kMagic && ticket.bytes > 0 && ticket.bytes % kGranularity == 0;
}

// The card with this place in the machine, if this process sees it.
Device* find_card(int place) {
  for (const auto& device : machine().devices)
    if (device->physical == place) return device.get();
  return nullptr;
}

}  // namespace

int describe_in_file(const Page& page) {
  const int memory = page.charged ? machine().physical->file(page.device).descriptor() : page.descriptor;
  const Ticket ticket{kMagic, page.bytes, page.properties.location.type,
                      page.device ? page.device->physical : page.properties.location.id};
  if (memory < 0 || pwrite(memory, &ticket, sizeof ticket, ticket_place(page.offset)) != sizeof ticket)
    return -1;
  return memory;
}

void withdraw_from_file(const Page& page) {
  const Ticket nothing;
  const int memory = machine().physical->file(page.device).opened();
  // A handle that stays valid leads to bytes that nobody reads any more.
  [[maybe_unused]] const ssize_t written =
      memory < 0 ? 0 : pwrite(memory, &nothing, sizeof nothing, ticket_place(page.offset));
}

CUresult import_page(int descriptor, Page** out) {
  Machine& sim = machine();
  Ticket ticket;
  uint64_t offset = 0;
  if (!read_ticket(descriptor, ticket, offset)) return CUDA_ERROR_INVALID_VALUE;
  const auto type = static_cast<CUmemLocationType>(ticket.location_type);
  Device* device = type == CU_MEM_LOCATION_TYPE_DEVICE ? find_card(ticket.location_id) : nullptr;
  if (type == CU_MEM_LOCATION_TYPE_DEVICE && !device) return CUDA_ERROR_INVALID_DEVICE;
  if (same_file(sim.physical->file(device).opened(), descriptor)) {
    *out = sim.physical->find_extent(device, offset);
    if (!*out) return CUDA_ERROR_INVALID_VALUE;  // the page went away
    ++(*out)->references;
    return CUDA_SUCCESS;
  }
  const int own = sim.config.compute ? fcntl(descriptor, F_DUPFD_CLOEXEC, 0) : -1;
  if (sim.config.compute && own < 0) return CUDA_ERROR_OPERATING_SYSTEM;
  CUmemAllocationProp properties = {};
  properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  properties.requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
  properties.location = {.type = type, .id = device ? device->ordinal : ticket.location_id};
  *out = sim.physical->adopt(properties, device, ticket.bytes, own, offset);
  return CUDA_SUCCESS;
}

}  // namespace spillway::simulator

using namespace spillway::simulator;

CUresult cuMemExportToShareableHandle(void* shareableHandle, CUmemGenericAllocationHandle handle,
                                      CUmemAllocationHandleType handleType, unsigned long long flags) {
  SPILLWAY_SIM_ENTER(cuMemExportToShareableHandle);
  Page* page = sim.physical->find(handle);
  if (!shareableHandle || !page || flags != 0) return CUDA_ERROR_INVALID_VALUE;
  if (handleType != CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR) return CUDA_ERROR_NOT_SUPPORTED;
  if (!(page->properties.requestedHandleTypes & handleType)) return CUDA_ERROR_INVALID_VALUE;
  return export_page(*page, static_cast<int*>(shareableHandle));
}

CUresult cuMemImportFromShareableHandle(CUmemGenericAllocationHandle* handle, void* osHandle,
                                        CUmemAllocationHandleType shHandleType) {
  SPILLWAY_SIM_ENTER(cuMemImportFromShareableHandle);
  if (!handle) return CUDA_ERROR_INVALID_VALUE;
  if (shHandleType != CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR) return CUDA_ERROR_NOT_SUPPORTED;
  Page* page = nullptr;
  const CUresult result = import_page(static_cast<int>(reinterpret_cast<intptr_t>(osHandle)), &page);
  if (result == CUDA_SUCCESS) *handle = page->handle;
  return result;
}
