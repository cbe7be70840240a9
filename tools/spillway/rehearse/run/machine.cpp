#include "tools/spillway/rehearse/run/machine.h"

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <memory>
#include <system_error>

#include "simulator/cards/machine_file.h"

namespace spillway::tools {
namespace {

using simulator::kMachineCards;
using simulator::kMachineMagic;
using simulator::kMachineProcesses;
using simulator::MachineFile;

constexpr uint64_t kMostProcesses = 1 << 22;  // of Linux

std::unique_ptr<MachineFile> load(const std::string& path) {
  std::error_code ignored;
  if (!std::filesystem::is_regular_file(path, ignored)) return nullptr;  // one that is not ours may be a pipe
  auto file = std::make_unique<MachineFile>();
  std::ifstream stream(path, std::ios::binary);
  stream.read(reinterpret_cast<char*>(file.get()), sizeof *file);
  const bool whole = stream.gcount() == sizeof *file;
  return whole && file->magic == kMachineMagic && file->size == sizeof *file ? std::move(file) : nullptr;
}

std::string kind_of(const MachineFile& file) {
  return {file.kind, ::strnlen(file.kind, sizeof file.kind)};
}

DeviceObservation observed(const MachineFile& file, size_t card, const MachineFile::Use& use) {
  CardView view;
  view.card = kind_of(file);
  view.physical = static_cast<int>(card);
  view.capacity = file.cards[card].capacity_bytes;
  view.peak = use.peak_bytes;
  view.allocator_at_peak = use.allocator_at_peak_bytes;
  view.outside_peak = use.outside_peak_bytes;
  view.refused = use.refused;
  view.first_refused_bytes = use.refused_bytes;
  DeviceObservation device;
  device.ordinal = static_cast<int>(use.ordinal < kMachineCards ? use.ordinal : card);
  device.card = std::move(view);
  return device;
}

ProcessRecord read_process(const MachineFile& file, const MachineFile::Process& process) {
  ProcessRecord record{static_cast<int64_t>(process.id), process.start, {}};
  for (size_t card = 0; card < kMachineCards; ++card) {
    const MachineFile::Use& use = process.uses[card];
    if (use.peak_bytes > 0 || use.refused > 0) record.devices.push_back(observed(file, card, use));
  }
  return record;
}

// A peak and what PyTorch's allocator had of it are of one moment.
void raise(const CardView& record, CardView* seen) {
  if (record.peak > seen->peak) {
    seen->peak = record.peak;
    seen->allocator_at_peak = record.allocator_at_peak;
  }
  seen->outside_peak = std::max(seen->outside_peak, record.outside_peak);
}

// A report says more; but it lacks what came after it, and a program that became another has but the last's.
void complete(const ProcessRecord& record, Observation* process) {
  for (const DeviceObservation& device : record.devices) {
    DeviceObservation& seen = process->devices[device.ordinal];
    seen.ordinal = device.ordinal;
    if (!seen.card)
      seen.card = device.card;
    else if (device.card)
      raise(*device.card, &*seen.card);
  }
}

bool is_in(const MachineRecord& machine, const ProcessRecord& process) {
  return std::any_of(machine.processes.begin(), machine.processes.end(), [&](const ProcessRecord& one) {
    return one.pid == process.pid && one.start == process.start;
  });
}

// The reports of processes that the file has no place for any more.
uint64_t reported_beyond(const MachineRecord& machine, int card, const std::vector<Observation>& all) {
  const auto is_listed = [&](int64_t pid) {
    return std::any_of(machine.processes.begin(), machine.processes.end(),
                       [&](const ProcessRecord& one) { return one.pid == pid; });
  };
  return static_cast<uint64_t>(std::count_if(all.begin(), all.end(), [&](const Observation& process) {
    return !is_listed(process.pid) &&
           std::any_of(process.devices.begin(), process.devices.end(), [&](const auto& device) {
             return device.second.card && device.second.card->physical == card;
           });
  }));
}

void add_gone(const MachineRecord& machine, const MachineRecord& before, std::vector<Observation>* all) {
  Observation together;
  for (const auto& [number, card] : machine.cards) {
    const auto earlier = before.cards.find(number);
    const uint64_t known =
        reported_beyond(machine, number, *all) + (earlier == before.cards.end() ? 0 : earlier->second.gone);
    if (card.gone <= known) continue;
    together.unreported = std::max(together.unreported, std::min(card.gone - known, kMostProcesses));
    DeviceObservation& device = together.devices[number];
    device.ordinal = number;
    device.card = CardView{};
    device.card->physical = number;
    device.card->capacity = card.capacity;
    device.card->peak = card.gone_peak;
    device.card->refused = card.gone_refused;
  }
  if (together.unreported > 0) all->push_back(std::move(together));
}

}  // namespace

MachineRecord read_machine(const std::string& path) {
  MachineRecord record;
  const auto file = load(path);
  if (!file) return record;
  record.card = kind_of(*file);
  for (size_t i = 0; i < kMachineCards; ++i) {
    const MachineFile::Card& card = file->cards[i];
    if (card.capacity_bytes > 0 || card.peak_bytes > 0 || card.gone > 0)
      record.cards[static_cast<int>(i)] = {card.capacity_bytes, card.peak_bytes, card.gone,
                                           card.gone_peak_bytes, card.gone_refused};
  }
  for (size_t i = 0; i < std::min<uint64_t>(file->places, kMachineProcesses); ++i) {
    ProcessRecord process = read_process(*file, file->processes[i]);
    if (!process.devices.empty()) record.processes.push_back(std::move(process));
  }
  return record;
}

void add_unreported(const MachineRecord& machine, const MachineRecord& before,
                    std::vector<Observation>* all) {
  add_gone(machine, before, all);
  for (const ProcessRecord& record : machine.processes) {
    if (is_in(before, record)) continue;
    auto process =
        std::find_if(all->begin(), all->end(), [&](const Observation& one) { return one.pid == record.pid; });
    if (process == all->end()) {
      process = all->insert(all->end(), Observation{});
      process->pid = record.pid;
      process->unreported = 1;
    }
    complete(record, &*process);
  }
}

}  // namespace spillway::tools
