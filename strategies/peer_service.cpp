#include "strategies/peer_service.h"

#include <signal.h>

#include <algorithm>
#include <atomic>
#include <mutex>
#include <system_error>
#include <thread>

#include "spillway/driver/table.h"
#include "strategies/framework.h"
#include "strategies/free_bytes.h"
#include "strategies/process.h"

namespace spillway {
namespace {

constexpr auto kWait = std::chrono::seconds(5);
std::atomic<Ledger*> joined{nullptr};

// The ordinal of the device in this process; -1: not visible here.
int ordinal_of(const driver::Table& table, const DeviceUuid& device) {
  int count = 0;
  if (table.cuDeviceGetCount(&count) != CUDA_SUCCESS) return -1;
  for (int ordinal = 0; ordinal < count; ++ordinal) {
    CUuuid uuid;
    if (table.cuDeviceGetUuid(&uuid, ordinal) == CUDA_SUCCESS &&
        std::equal(device.begin(), device.end(), reinterpret_cast<const uint8_t*>(uuid.bytes)))
      return ordinal;
  }
  return -1;
}

// The device's primary context on this thread, if the process uses it: a context is never made for others.
class UsedDevice {
 public:
  UsedDevice(const driver::Table& table, int ordinal) : table_(table), ordinal_(ordinal) {
    unsigned flags = 0;
    int active = 0;
    CUcontext context = nullptr;
    if (table.cuDevicePrimaryCtxGetState(ordinal, &flags, &active) != CUDA_SUCCESS || active == 0) return;
    if (table.cuDevicePrimaryCtxRetain(&context, ordinal) != CUDA_SUCCESS) return;
    held_ = true;
    current_ = table.cuCtxSetCurrent(context) == CUDA_SUCCESS;
  }
  ~UsedDevice() {
    if (current_) table_.cuCtxSetCurrent(nullptr);
    if (held_) table_.cuDevicePrimaryCtxRelease(ordinal_);
  }
  UsedDevice(const UsedDevice&) = delete;
  UsedDevice& operator=(const UsedDevice&) = delete;
  bool current() const { return current_; }

 private:
  const driver::Table& table_;
  const int ordinal_;
  bool held_ = false, current_ = false;
};

uint64_t give(const driver::Table& table, const Ledger::Need& need) {
  const int ordinal = ordinal_of(table, need.device);
  if (ordinal < 0) return 0;
  const UsedDevice device(table, ordinal);
  if (!device.current()) return 0;
  const size_t before = free_bytes(table);
  if (prepare_framework()) empty_framework_cache();
  if (Allocator* allocator = Process::get().allocator()) allocator->empty_cache(DeviceId{ordinal});
  const size_t after = free_bytes(table);
  return after > before ? after - before : 0;
}

void serve(Ledger& ledger, uint32_t (*captures)()) {
  for (;;) {
    Ledger::Need need;
    if (!ledger.wait_for_need(&need, kWait)) continue;
    const driver::Table* table = driver::process_table(nullptr);
    if (table != nullptr) stay_out_of_captures(*table);
    ledger.answer(need, table == nullptr || captures() != 0 ? 0 : give(*table, need));
  }
}

// The program's signals are for its own threads.
bool start_thread(Ledger& ledger, uint32_t (*captures)(), std::string* why_not) {
  sigset_t all, before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  bool started = true;
  try {
    std::thread([&ledger, captures] { serve(ledger, captures); }).detach();
  } catch (const std::system_error& error) {
    *why_not = std::string("no thread for the ledger: ") + error.what();
    started = false;
  }
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  return started;
}

}  // namespace

bool PeerService::start(uint32_t (*captures)(), std::string* why_not) {
  static std::mutex mutex;
  std::lock_guard guard(mutex);
  if (joined.load() != nullptr) return true;
  const std::string name = ledger_name();
  if (captures == nullptr || name.empty()) {
    *why_not = "SPILLWAY_LEDGER is off";
    return false;
  }
  std::unique_ptr<Ledger> ledger = Ledger::join(name, why_not);
  if (ledger == nullptr || !start_thread(*ledger, captures, why_not)) return false;
  joined.store(ledger.release());  // for ever: the thread uses it
  return true;
}

Ledger* PeerService::ledger() {
  return joined.load();
}

}  // namespace spillway
