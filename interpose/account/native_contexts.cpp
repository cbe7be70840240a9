#include "interpose/account/native_contexts.h"

#include "interpose/account/native_account.h"
#include "interpose/account/native_graphs.h"
#include "interpose/hooks/driver_table.h"

namespace spillway::interpose {
namespace {

CUcontext primary[SPILLWAY_MOST_DEVICES];  // read and written while the table is held

}  // namespace

void note_primary_context(CUcontext context, CUdevice device) {
  if (!is_device(device)) return;
  const HeldTable table;
  primary[device] = context;
}

void context_gone(CUcontext context) {
  if (context == nullptr) return;
  const HeldTable table;
  table->remove_if([context](const NativeEntry& entry) {
    if (entry.context != context) return false;
    give_back(entry.device, entry.bytes);
    return true;
  });
}

void look_at_primary_context(CUdevice device) {
  unsigned flags = 0;
  int active = 1;
  if (!is_device(device) || real().cuDevicePrimaryCtxGetState == nullptr) return;
  if (real().cuDevicePrimaryCtxGetState(device, &flags, &active) != CUDA_SUCCESS || active != 0) return;
  CUcontext context = nullptr;
  {
    const HeldTable table;
    context = primary[device];
  }
  context_gone(context);
  graph_memory_gone(device);
}

}  // namespace spillway::interpose
