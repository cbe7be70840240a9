#include "simulator/driver/machine/state.h"

#include <link.h>
#include <pthread.h>

#include <cstdio>
#include <cstdlib>
#include <string_view>

#include "simulator/driver/entry/call.h"
#include "simulator/driver/entry/driver_version.h"
#include "simulator/driver/machine/visible.h"

namespace spillway::simulator {
namespace {

// A child of fork inherits the tables but not the driver: as with the real one, it may only say so.
void watch_for_fork() {
  pthread_atfork([]() SPILLWAY_ACQUIRE(machine().mutex) { machine().mutex.lock(); },
                 []() SPILLWAY_RELEASE(machine().mutex) { machine().mutex.unlock(); },
                 []() SPILLWAY_RELEASE(machine().mutex) {
                   if (machine().initialised)
                     machine().forked = true;
                   else if (machine().shared.is_open())  // its entry is the parent's
                     machine().shared.close();
                   machine().mutex.unlock();
                 });
}

uint64_t window_bytes(const Config& config) {
  constexpr uint64_t kLeast = uint64_t{64} << 30, kMost = uint64_t{16} << 40;
  const uint64_t total = config.capacity_bytes * static_cast<uint64_t>(config.devices);
  return std::clamp(total > kMost / 32 ? kMost : total * 32, kLeast, kMost);
}

CodeRange find_runtime() {
  CodeRange found;
  dl_iterate_phdr(
      [](dl_phdr_info* library, size_t, void* out) {
        const std::string_view path = library->dlpi_name;
        if (!path.ends_with("/libcudart.so.13")) return 0;
        for (int i = 0; i < library->dlpi_phnum; ++i) {
          const auto& segment = library->dlpi_phdr[i];
          if (segment.p_type != PT_LOAD || !(segment.p_flags & PF_X)) continue;
          const uintptr_t begin = library->dlpi_addr + segment.p_vaddr;
          *static_cast<CodeRange*>(out) = {begin, begin + segment.p_memsz};
        }
        return 1;
      },
      &found);
  return found;
}

// A profile of an older driver describes a library of its own: what that one does not export shows in no
// other.
std::string wrong_library(const Config& config) {
  const int wanted = config.driver.version;
  if (wanted == 0 || wanted == kDriverVersion) return "";
  const auto text = [](int version) {
    return std::to_string(version / 1000) + "." + std::to_string(version % 1000 / 10);
  };
  return "the profile is of a driver of CUDA " + text(wanted) + ", and this library is one of CUDA " +
         text(kDriverVersion) + ": put its folder, sim/driver-" + text(wanted) +
         " where there is one, first in LD_LIBRARY_PATH, as 'spillway simulate --profile' does";
}

thread_local bool has_put_work = false;

}  // namespace

uint64_t thread_token() {
  static std::atomic<uint64_t> next{1};
  thread_local const uint64_t token = next++;
  return token;
}

Machine& machine() {
  static Machine* const made = [] {
    return new Machine;  // never destroyed: the program's own destructors may still call the driver
  }();
  static const bool watched = (watch_for_fork(), true);
  (void)watched;
  return *made;
}

bool Machine::join_others() {
  const char* path = std::getenv("SPILLWAY_SIM_MACHINE");
  if (!path || !*path || shared.is_open()) return true;
  const std::string wrong = shared.open(path);
  if (!wrong.empty()) std::fprintf(stderr, "spillway simulator: %s\n", wrong.c_str());
  return wrong.empty();
}

CUresult Machine::initialise() {
  if (initialised) return CUDA_SUCCESS;
  Config read;
  std::string wrong = read_config(read);
  if (wrong.empty()) wrong = wrong_library(read);
  if (!wrong.empty()) {
    std::fprintf(stderr, "spillway simulator: %s\n", wrong.c_str());
    return CUDA_ERROR_INVALID_VALUE;
  }
  const std::vector<int> visible = visible_devices(std::getenv("CUDA_VISIBLE_DEVICES"), read.devices);
  if (visible.empty()) return CUDA_ERROR_NO_DEVICE;
  if (!join_others()) return CUDA_ERROR_INVALID_VALUE;
  config = read;
  runtime_code = find_runtime();
  if (!space.open(window_bytes(config), config.compute)) {
    std::fprintf(stderr,
                 "spillway simulator: the system gives no addresses for the device memory (ulimit -v?)\n");
    return CUDA_ERROR_OUT_OF_MEMORY;
  }
  physical = std::make_unique<PhysicalMemory>(config.compute, config.poison);
  for (size_t ordinal = 0; ordinal < visible.size(); ++ordinal) {
    auto made = std::make_unique<Device>(static_cast<int>(ordinal), visible[ordinal]);
    made->account.set_capacity(config.capacity_bytes);
    made->account.set_evict([this, device = made.get()](uint64_t bytes) { managed.evict(*device, bytes); });
    if (shared.is_open()) {
      shared.describe(made->physical, made->ordinal, config.capacity_bytes, config.card.id);
      made->account.share(&shared, made->physical);
    }
    made->primary.device = made.get();
    made->legacy.context = &made->primary;
    made->default_pool.device = made->graph_pool.device = made.get();
    devices.push_back(std::move(made));
  }
  for (const auto& [name, ns] : config.latency_ns) latencies.set(find_configurable(name), ns);
  for (const auto& [name, ns] : config.latency_per_gib_ns) latencies.set_per_gib(find_configurable(name), ns);
  for (const auto& [name, ns] : config.latency_per_mapping_ns)
    latencies.set_per_mapping(find_configurable(name), ns);
  faults.set_plan(config.fail);
  faults.set_seeded(config.fail.seed, config.fail.probability, config.fail.code);
  initialised = true;
  return CUDA_SUCCESS;
}

Device* Machine::device(int ordinal) {
  return ordinal >= 0 && ordinal < static_cast<int>(devices.size()) ? devices[ordinal].get() : nullptr;
}

ContextStack& context_stack() {
  thread_local constinit ContextStack stack;
  return stack;
}

Context* current_context() {
  const auto& stack = context_stack();
  return stack.empty() ? nullptr : stack.back();
}

namespace {

Stream& per_thread_stream(Device& device, Context* context) {
  auto& stream = device.per_thread[thread_token()];
  if (!stream) {
    stream = std::make_unique<Stream>();
    stream->context = context;
    stream->id = machine().next_id++;
  }
  return *stream;
}

}  // namespace

Event* find_event(CUevent handle) {
  auto* event = reinterpret_cast<Event*>(handle);
  if (machine().event_handles.contains(event)) return event;
  refuse_destroyed(handle);
  return nullptr;
}

CUresult find_stream(CUstream handle, Stream** out) {
  if (handle != nullptr && handle != CU_STREAM_LEGACY && handle != CU_STREAM_PER_THREAD) {
    auto* stream = reinterpret_cast<Stream*>(handle);
    if (!machine().stream_handles.contains(stream)) {
      refuse_destroyed(handle);
      return CUDA_ERROR_INVALID_HANDLE;
    }
    *out = stream;
    return CUDA_SUCCESS;
  }
  Context* context = current_context();
  if (!context) return CUDA_ERROR_INVALID_CONTEXT;
  Device& device = *context->device;
  *out = handle == CU_STREAM_PER_THREAD ? &per_thread_stream(device, context) : &device.legacy;
  return CUDA_SUCCESS;
}

bool thread_acts() {
  return (has_put_work || is_backward_thread()) && !is_watchdog();
}

void note_action() {
  has_put_work = true;
}

Interval place(Stream& stream, Lane* engine, uint64_t duration_ns) {
  Device& device = *stream.context->device;
  const bool legacy = &stream == &device.legacy;
  note_action();
  uint64_t start = std::max(machine().clock.now(), stream.free_at);
  if (engine) start = std::max(start, engine->free_at);
  if (legacy) {
    start = std::max(start, device.blocking_end);
    join(stream.outside, device.blocking_outside);
  }
  if (!legacy && stream.blocking()) {
    start = std::max(start, device.legacy.free_at);
    join(stream.outside, device.legacy.outside);
    join(device.blocking_outside, stream.outside);
  }
  const uint64_t end = start + duration_ns;
  stream.free_at = end;
  if (engine) engine->free_at = end;
  if (!legacy && stream.blocking()) device.blocking_end = std::max(device.blocking_end, end);
  device.last_end = std::max(device.last_end, end);
  return {start, end};
}

}  // namespace spillway::simulator
