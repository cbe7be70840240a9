#include "trainer/app/automatic_plan.h"

#include <algorithm>
#include <cstdio>

#include "strategies/budget/host_budget.h"
#include "trainer/plan/planner.h"

namespace spillway::trainer {
namespace {

at::ScalarType factors_of(Precision precision) {
  switch (precision) {
    case Precision::kBf16Mixed:
    case Precision::kBf16:
    case Precision::kInt8:
      return at::kBFloat16;
    case Precision::kFp16Mixed:
      return at::kHalf;
    default:
      return at::kFloat;
  }
}

// Of the device with the least. 0: nobody knows.
uint64_t least_for_training(const std::vector<at::Device>& devices, const Core& core) {
  const std::vector<uint64_t> bytes = bytes_for_training(devices, core);
  return bytes.empty() ? 0 : *std::ranges::min_element(bytes);
}

double mebibytes(uint64_t bytes) {
  return double(bytes) / 0x1p20;
}

std::string room_of(const Machine& machine) {
  return machine.device_bytes ? " of " + std::to_string(machine.device_bytes >> 20) : ", without a limit";
}

std::string text_of(const Planned& planned, const Candidate& chosen, const Machine& machine,
                    const Shape& shape, RatesFrom from) {
  char text[400];
  const std::string room = room_of(machine);
  if (!planned.best)
    std::snprintf(text, sizeof text,
                  "plan: none of %u that were estimated fits; the nearest lacks %.0f MiB of a device and "
                  "%.0f of the host",
                  planned.estimates, mebibytes(chosen.lacking_bytes), mebibytes(chosen.lacking_host_bytes));
  else
    std::snprintf(text, sizeof text,
                  "plan: the fastest of %u that were estimated, %.0f MiB%s, by its estimate %.0f tokens/s, "
                  "limited by %s "
                  "(%.1f TFLOPS, host %.1f GB/s: %s)",
                  planned.estimates, mebibytes(chosen.most_device_bytes()), room.c_str(),
                  chosen.tokens_per_second(shape), chosen.time.limit(), machine.flops / 1e12,
                  machine.host_bytes_per_second / 1e9, name_of(from));
  return text;
}

AutomaticPlan choose_micro_batch(const Config& config, const Shape& shape, const Survey& survey) {
  const Planned planned = find_micro_batch(shape, survey.machine, config.plan);
  const Candidate& chosen = planned.alternatives.front();
  char text[160];
  if (planned.best)
    std::snprintf(text, sizeof text, "plan: the largest micro-batch that fits, by its estimate %.0f MiB%s",
                  mebibytes(chosen.most_device_bytes()), room_of(survey.machine).c_str());
  else
    std::snprintf(text, sizeof text, "plan: no micro-batch fits; the smallest lacks %.0f MiB of a device",
                  mebibytes(chosen.lacking_bytes));
  return {chosen.plan, text};
}

}  // namespace

std::vector<uint64_t> bytes_for_training(const std::vector<at::Device>& devices, const Core& core) {
  std::vector<uint64_t> all;
  for (const at::Device& device : devices) {
    if (!device.is_cuda()) return {};
    at::empty({1}, at::TensorOptions().device(device));
    spillway_memory memory;
    if (!core.query(device.index(), &memory)) return {};
    all.push_back(memory.limit - std::min(memory.limit, memory.context + memory.others));
  }
  return all;
}

Survey survey(const Config& config, const Machine& machine, const std::vector<at::Device>& devices,
              const Core& core) {
  Survey found{.machine = machine};
  const at::ScalarType factors = factors_of(config.train.numerics.precision);
  try {
    if (config.chooses_plan() || !on_simulated_card())
      found.machine.device_bytes = least_for_training(devices, core);
    if (config.automatic_plan && machine.host_is_apart)
      found.machine.host_bytes = default_host_budget_bytes(1);
    found.from = measure_rates(devices[0], factors, found.machine.device_bytes, &found.machine);
    if (found.from == RatesFrom::kMeasured && devices.size() > 1)
      measure_peer_rate(devices[0], devices[1], &found.machine);
  } catch (const c10::OutOfMemoryError&) {  // others have the room
    const uint64_t bytes = found.machine.device_bytes, host_bytes = found.machine.host_bytes;
    found = {.machine = machine, .from = RatesFrom::kNoRoom};
    found.machine.device_bytes = bytes, found.machine.host_bytes = host_bytes;
  }
  return found;
}

AutomaticPlan choose_plan(const Config& config, const Shape& shape, const Survey& survey) {
  if (!config.automatic_plan) return choose_micro_batch(config, shape, survey);
  const Planned planned = find_plan(shape, survey.machine, config.recovery.floor, config.plan);
  const Candidate& chosen = planned.best ? *planned.best : planned.alternatives.front();
  return {chosen.plan, text_of(planned, chosen, survey.machine, shape, survey.from)};
}

}  // namespace spillway::trainer
