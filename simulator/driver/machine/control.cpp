// The control interface: what tests, CPU kernels and reports ask of the simulator beyond CUDA.
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstring>

#include "simulator/cards/overheads.h"
#include "simulator/driver/entry/call.h"
#include "simulator/driver/graph/capture.h"
#include "simulator/driver/machine/module.h"
#include "simulator/driver/process/reads.h"
#include "simulator/driver/process/report.h"
#include "simulator/driver/work/launch.h"

namespace spillway::simulator {
namespace {

// Asked before cuInit too: then the configuration says.
int mode() {
  Machine& sim = machine();
  const Locked lock(sim.mutex);
  Config asked;
  const bool compute = sim.initialised ? sim.config.compute : read_config(asked).empty() && asked.compute;
  return compute ? SPILLWAY_SIMULATOR_COMPUTE : SPILLWAY_SIMULATOR_NULL;
}

ptrdiff_t alias_offset() {
  const Locked lock(machine().mutex);
  return machine().space.alias_offset();
}

CUresult submit_work(CUstream stream, const char* name, const SpillwayRange* ranges, size_t count,
                     uint64_t duration_ns, void (*work)(void*), void* argument) {
  return submit(stream, name, ranges, count, duration_ns, work, argument, SPILLWAY_SIM_CALLER);
}

CUresult submit_external_work(CUstream stream, const SpillwayExternalWork* work) {
  if (!work || work->size < sizeof(SpillwayExternalWork) || !work->wait) return CUDA_ERROR_INVALID_VALUE;
  return submit_external(stream, *work, SPILLWAY_SIM_CALLER);
}

int is_capturing(CUstream handle) {
  if (capture_count() == 0) return 0;
  if (!handle) return 1;
  const Locked lock(machine().mutex);
  Stream* stream = nullptr;
  return find_stream(handle, &stream) == CUDA_SUCCESS && stream->capture ? 1 : 0;
}

CUresult capture_work(CUstream stream, const char* name, const SpillwayRange* ranges, size_t count,
                      uint64_t duration_ns, int (*work)(void*), void (*release)(void*), void* argument) {
  if (!work || !release || (count > 0 && !ranges)) return CUDA_ERROR_INVALID_VALUE;
  return capture(stream, name, ranges, count, duration_ns, {work, release, argument}, SPILLWAY_SIM_CALLER);
}

CUresult preserve_bytes(CUstream handle, const SpillwayRange* ranges, size_t count) {
  const Locked lock(machine().mutex);
  Stream* stream = nullptr;
  if (const CUresult result = find_stream(handle, &stream); result != CUDA_SUCCESS) return result;
  if (!stream->capture) return CUDA_ERROR_ILLEGAL_STATE;
  for (size_t i = 0; i < count; ++i)
    if (ranges[i].writes) preserve(*stream->capture, ranges[i].address, ranges[i].bytes);
  return CUDA_SUCCESS;
}

// Before cuInit the configuration says.
double tflops_asked() {
  Config asked;
  return read_config(asked).empty() ? asked.kernels.tflops : 0;
}

int operators_take_time() {
  const double tflops = machine().initialised ? machine().config.kernels.tflops : tflops_asked();
  if (tflops != 0) return SPILLWAY_SIMULATOR_TIMED;
  return machine().space.any_remote() ? 1 : 0;
}

int ask(CUdeviceptr address, void* out, uint64_t bytes) {
  const Locked lock(machine().mutex);
  return find_known(address, out, bytes) ? 1 : 0;
}

int await_and_ask(CUdeviceptr address, void* out, uint64_t bytes) {
  await_bytes(address, bytes);
  const Locked lock(machine().mutex);
  return find_known(address, out, bytes) ? 1 : 0;
}

void tell(CUdeviceptr address, const void* bytes, uint64_t count) {
  const Locked lock(machine().mutex);
  bytes ? know(address, bytes, count) : forget(address, count);
}

int holds_unknown(const void* host, uint64_t bytes) {
  const Locked lock(machine().mutex);
  return machine().host.holds_unknown(host, bytes) ? 1 : 0;
}

uint64_t submitted_by_this_thread(void) {
  return submitted_kernels();
}

void answer_next_read(int known, uint64_t value) {
  const bool assumed = known == SPILLWAY_SIMULATOR_AT_MOST;
  const bool given = known != 0 && (!assumed || machine().config.masks);
  next_answer() = given ? std::optional(Answer{value, assumed}) : std::nullopt;
}

void fail_call(uint64_t n, const char* name, int persistent, CUresult code) {
  const Locked lock(machine().mutex);
  const FaultPlan plan{.call = n, .name = name ? name : "", .persistent = persistent != 0, .code = code};
  if (!machine().faults.set_plan(plan))
    std::fprintf(stderr, "spillway simulator: fail_call: %s is no function that the simulator implements\n",
                 name);
}

void fail_seeded(uint64_t seed, double probability, CUresult code) {
  const Locked lock(machine().mutex);
  machine().faults.set_seeded(seed, probability, code);
}

CUresult set_latency(const char* name, uint64_t ns) {
  const Locked lock(machine().mutex);
  const Function function = name ? find_configurable(name) : Function::kCount;
  if (function == Function::kCount) return CUDA_ERROR_NOT_FOUND;
  machine().latencies.set(function, ns);
  return CUDA_SUCCESS;
}

uint64_t calls(const char* name) {
  const Locked lock(machine().mutex);
  const Function function = name ? find_configurable(name) : Function::kCount;
  return function == Function::kCount ? 0 : machine().counters.calls[static_cast<size_t>(function)];
}

CUfunction function(const char* name) {
  const Locked lock(machine().mutex);
  return name ? function_named(name) : nullptr;
}

CUresult set_capacity(int device, uint64_t bytes) {
  const Locked lock(machine().mutex);
  Device* found = machine().device(device);
  if (!machine().initialised) return CUDA_ERROR_NOT_INITIALIZED;
  if (!found) return CUDA_ERROR_INVALID_DEVICE;
  found->account.set_capacity(bytes);
  return CUDA_SUCCESS;
}

void counts(SpillwaySimulatorCounts* out) {
  Machine& sim = machine();
  const Locked lock(sim.mutex);
  *out = {.driver_calls = sim.faults.calls(),
          .injected_failures = sim.faults.fired(),
          .violations = sim.referee.count(),
          .live_pages_bytes = sim.physical ? sim.physical->live_bytes() : 0,
          .peak_pages_bytes = sim.physical ? sim.physical->peak_bytes() : 0,
          .launches = sim.counters.launches,
          .copies = sim.counters.copies,
          .copied_bytes = sim.counters.copied_bytes,
          .virtual_ns = sim.clock.now(),
          .driver_stall_ns = sim.counters.stall_ns};
}

size_t copy_text(const std::string& text, char* out, size_t size) {
  if (out && size > 0) {
    const size_t length = std::min(size - 1, text.size());
    std::memcpy(out, text.data(), length);
    out[length] = 0;
  }
  return text.size();
}

size_t violations(char* out, size_t size) {
  const Locked lock(machine().mutex);
  return copy_text(machine().referee.text(), out, size);
}

size_t leak_text(char* out, size_t size) {
  const Locked lock(machine().mutex);
  return copy_text(leaks(), out, size);
}

void reset() {
  Machine& sim = machine();
  const Locked lock(sim.mutex);
  sim.referee.reset();
  sim.faults.reset();
  sim.counters = {};
  sim.host_reads.clear();
  sim.uncomputed.clear();
  if (sim.physical) sim.physical->reset_peak();
  for (const auto& device : sim.devices) device->account.reset();
}

CUresult find_account(int device, Account** out) {
  Machine& sim = machine();
  if (sim.forked || !sim.initialised) return CUDA_ERROR_NOT_INITIALIZED;
  if (!sim.device(device)) return CUDA_ERROR_INVALID_DEVICE;
  *out = &sim.device(device)->account;
  return CUDA_SUCCESS;
}

bool is_label(const Account& account, const char* label) {
  constexpr size_t kLongest = sizeof(SpillwayModelledPart::label) - 1;
  if (!label || !*label || strnlen(label, kLongest + 1) > kLongest) return false;
  return account.parts().contains(std::string_view(label)) ||
         account.parts().size() < SPILLWAY_SIMULATOR_MAX_PARTS;
}

CUresult charge(int device, const char* label, uint64_t bytes) {
  const Locked lock(machine().mutex);
  Account* account = nullptr;
  if (const CUresult result = find_account(device, &account); result != CUDA_SUCCESS) return result;
  if (!is_label(*account, label)) return CUDA_ERROR_INVALID_VALUE;
  return account->charge(label, bytes) ? CUDA_SUCCESS : refused_for_lack_of_room();
}

CUresult discharge(int device, const char* label, uint64_t bytes) {
  const Locked lock(machine().mutex);
  Account* account = nullptr;
  if (const CUresult result = find_account(device, &account); result != CUDA_SUCCESS) return result;
  return label && account->discharge(label, bytes) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult label_page(const char* label, uint64_t bytes) {
  constexpr size_t kLongest = sizeof(SpillwayModelledPart::label) - 1;
  if (label && (!*label || strnlen(label, kLongest + 1) > kLongest)) return CUDA_ERROR_INVALID_VALUE;
  next_page_label() = label ? PageLabel{label, bytes} : PageLabel{};
  return CUDA_SUCCESS;
}

CUresult usage(int device, SpillwaySimulatorUsage* out) {
  const Locked lock(machine().mutex);
  Account* account = nullptr;
  if (!out) return CUDA_ERROR_INVALID_VALUE;
  if (const CUresult result = find_account(device, &account); result != CUDA_SUCCESS) return result;
  *out = {};
  out->physical = static_cast<uint32_t>(machine().device(device)->physical);
  out->active_contexts = static_cast<uint32_t>(machine().device(device)->active_contexts);
  out->capacity_bytes = account->capacity_bytes();
  out->charged_bytes = account->charged_bytes();
  out->peak_bytes = account->peak_bytes();
  out->others_bytes = account->others_bytes();
  out->modelled_bytes = account->modelled_bytes();
  out->refused_requests = account->refused_requests();
  for (const auto& [label, part] : account->parts()) {
    SpillwayModelledPart& named = out->parts[out->part_count++];
    std::memcpy(named.label, label.c_str(), label.size() + 1);
    named.bytes = part.bytes;
    named.at_peak_bytes = part.at_peak_bytes;
  }
  return CUDA_SUCCESS;
}

uint64_t overhead(int device, const char* row) {
  const Locked lock(machine().mutex);
  Account* account = nullptr;
  if (!row || find_account(device, &account) != CUDA_SUCCESS) return 0;
  if (!cards::find_overhead(row, machine().config.card.major))
    std::fprintf(stderr, "spillway simulator: '%s' is no row of simulator/cards/overheads.inc\n", row);
  return overhead_bytes(machine().config, row);
}

CUresult card(int physical, SpillwaySimulatorCard* out) {
  const Locked lock(machine().mutex);
  Config asked = machine().config;
  if (!machine().initialised) {
    asked = {};
    if (const std::string wrong = read_config(asked); !wrong.empty()) {
      std::fprintf(stderr, "spillway simulator: %s\n", wrong.c_str());
      return CUDA_ERROR_INVALID_VALUE;
    }
  }
  if (!out) return CUDA_ERROR_INVALID_VALUE;
  if (physical < 0 || physical >= asked.devices) return CUDA_ERROR_INVALID_DEVICE;
  const cards::Card& kind = asked.card;
  *out = {.name = {},
          .uuid = {},
          .capacity_bytes = asked.capacity_bytes,
          .framebuffer_bytes = asked.capacity_bytes + kind.framebuffer_bytes - kind.capacity_bytes,
          .major = kind.major,
          .minor = kind.minor,
          .multiprocessors = kind.multiprocessors,
          .clock_khz = kind.clock_khz,
          .memory_clock_khz = kind.memory_clock_khz,
          .memory_bus_bits = kind.memory_bus_bits,
          .pci_bus = cards::pci_bus(physical),
          .pcie_generation = kind.pcie_generation,
          .ecc = kind.ecc};
  std::snprintf(out->name, sizeof out->name, "%s", std::string(kind.name).c_str());
  std::snprintf(out->uuid, sizeof out->uuid, "%s", cards::uuid_text(physical).c_str());
  return CUDA_SUCCESS;
}

size_t processes(int physical, SpillwaySimulatorProcess* out, size_t size) {
  Machine& sim = machine();
  const Locked lock(sim.mutex);
  if (physical < 0 || physical >= kMaxDevices) return 0;
  std::vector<Share> shares;
  if (!sim.forked && sim.join_others() && sim.shared.is_open()) shares = sim.shared.shares(physical);
  const auto self = static_cast<uint64_t>(getpid());
  std::erase_if(shares, [&](const Share& share) { return share.process == self; });
  if (!sim.forked)
    for (const auto& device : sim.devices)
      if (device->physical == physical && device->active_contexts > 0)
        shares.push_back({self, device->account.charged_bytes()});
  for (size_t i = 0; i < std::min(size, shares.size()); ++i) out[i] = {shares[i].process, shares[i].bytes};
  return shares.size();
}

CUresult write_report_now() {
  Machine& sim = machine();
  if (sim.forked || !sim.initialised) return CUDA_ERROR_NOT_INITIALIZED;
  const Locked lock(sim.mutex);
  return write_report("asked");
}

constexpr SpillwaySimulatorControl kControl = {
    .size = sizeof(SpillwaySimulatorControl),
    .version = SPILLWAY_SIMULATOR_CONTROL_VERSION,
    .mode = mode,
    .alias_offset = alias_offset,
    .submit = submit_work,
    .fail_call = fail_call,
    .fail_seeded = fail_seeded,
    .set_latency = set_latency,
    .set_capacity = set_capacity,
    .counts = counts,
    .violations = violations,
    .leaks = leak_text,
    .reset = reset,
    .charge = charge,
    .discharge = discharge,
    .label_page = label_page,
    .usage = usage,
    .write_report = write_report_now,
    .submit_external = submit_external_work,
    .ask = ask,
    .tell = tell,
    .overhead = overhead,
    .observe_host_reads = set_read_observer,
    .card = card,
    .processes = processes,
    .stand_in = stand_in,
    .calls = calls,
    .function = function,
    .await_and_ask = await_and_ask,
    .holds_unknown = holds_unknown,
    .confine = confine,
    .submitted = submitted_by_this_thread,
    .answer_next_read = answer_next_read,
    .capturing = is_capturing,
    .capture = capture_work,
    .preserve = preserve_bytes,
    .operators_take_time = operators_take_time,
    .operate = operate,
};

}  // namespace
}  // namespace spillway::simulator

extern "C" __attribute__((visibility("default"))) const SpillwaySimulatorControl* spillway_simulator_control(
    void) {
  return &spillway::simulator::kControl;
}
