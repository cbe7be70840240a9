#include "tools/spillway/rehearse/report/report_text.h"

#include <algorithm>
#include <cstdio>

#include "allocator/request/verdict.h"
#include "tools/spillway/look.h"
#include "tools/spillway/rehearse/judge/failure_text.h"
#include "tools/spillway/rehearse/judge/places.h"
#include "tools/spillway/rehearse/report/plot.h"
#include "tools/spillway/report/text/table.h"
#include "tools/spillway/units.h"

namespace spillway::tools {
namespace {

constexpr size_t kPlaces = 12, kColumns = 64, kRows = 8;

struct Shown {
  const Observation* process;
  const DeviceObservation* device;
};

std::vector<Shown> used_devices(const Rehearsal& rehearsal) {
  std::vector<Shown> used;
  for (const Observation& process : rehearsal.processes) {
    for (const auto& [ordinal, device] : process.devices) {
      const bool active = device.allocator && device.allocator->events > 0;
      if (active || (device.card && device.card->peak > 0)) used.push_back({&process, &device});
    }
  }
  return used;
}

const Shown* fullest(const std::vector<Shown>& devices) {
  const auto found = std::max_element(devices.begin(), devices.end(), [](const Shown& a, const Shown& b) {
    return need_of(*a.device).peak < need_of(*b.device).peak;
  });
  return found == devices.end() ? nullptr : &*found;
}

std::string steps_text(uint64_t wanted, const Rehearsal& rehearsal) {
  uint64_t steps = 0;
  bool ended = false;
  for (const Observation& process : rehearsal.processes) {
    steps = std::max(steps, process.steps);
    ended |= process.ended_by_steps;
  }
  const std::string text =
      steps == 0 ? "no optimizer step seen" : count_text(steps, "optimizer step", "optimizer steps");
  if (ended) return text + " (ended there by --steps)";
  return steps < wanted ? text + " (it ended before the " + std::to_string(wanted) + " of --steps)" : text;
}

std::string headline(const RunOptions& options, const Rehearsal& rehearsal) {
  std::string text = verdict_text(options, rehearsal) + ": " + command_text(options.command) + "\n";
  char seconds[32];
  std::snprintf(seconds, sizeof seconds, "%.1f s", rehearsal.seconds);
  text += "  on " + machine_text(rehearsal) + ", allocator " + allocator_text(options, rehearsal) +
          ", values " + values_of(options, rehearsal) + "; " + steps_text(options.steps, rehearsal) + ", " +
          seconds + "\n";
  if (!fits_if(options, rehearsal).empty())
    text +=
        "  the lines that read from it are at the end; --values compute runs with true values, at small "
        "sizes\n";
  return text;
}

// Of a program that did not get what it asked for, what was left over is no room to spare.
std::string margin_text(const Rehearsal& rehearsal, const Need& need) {
  if (decide(rehearsal) != Fit::kFits || need.capacity == 0 || need.peak > need.capacity) return "-";
  const uint64_t margin = need.capacity - need.peak;
  return size_text(margin) + " (" + share_text(margin, need.capacity) + ")";
}

bool reached_its_end(const Rehearsal& rehearsal) {
  const Fit fit = decide(rehearsal);
  return fit == Fit::kFits || fit == Fit::kWentOn;
}

// A row for each process, and where several share a card one for all of them: only that one has a margin.
std::string device_table(const Rehearsal& rehearsal, const std::vector<Shown>& devices) {
  using enum Align;
  Table table({kLeft, kRight, kRight, kRight, kRight, kRight});
  table.add({reached_its_end(rehearsal) ? "peak by device" : "peak until it ended", "allocated", "reserved",
             "outside PyTorch", "whole card", "margin"});
  const auto add = [&table](const std::string& name, const Need& need, bool split,
                            const std::string& margin) {
    const auto part = [split](uint64_t bytes) { return split ? size_text(bytes) : "-"; };
    table.add(
        {name, part(need.allocated), part(need.reserved), part(need.outside), size_text(need.peak), margin});
  };
  for (const CardNeed& card : needs_of(rehearsal)) {
    bool all_split = true;  // what a process without a report took is not known to be PyTorch's
    for (const Shown& shown : devices) {
      if (physical_of(*shown.device) != card.physical) continue;
      const bool split = shown.process->unreported == 0;
      all_split &= split;
      const std::string name = device_name(rehearsal, *shown.process, shown.device->ordinal);
      if (card.processes > 1)
        add(name, need_of(*shown.device), split, "");
      else
        add(name, card.need, split, margin_text(rehearsal, card.need));
    }
    if (card.processes > 1)
      add("GPU " + std::to_string(card.physical) + ", all " + std::to_string(card.processes) + " processes",
          card.need, all_split, margin_text(rehearsal, card.need));
  }
  return table.text("");
}

bool lacks_its_end(const Observation& process) {
  return process.has_probe && !process.complete;
}

// The probe writes once a second, the simulator at each change.
std::string moments_text(const Rehearsal& rehearsal) {
  std::string processes;
  for (const Observation& process : rehearsal.processes)
    if (lacks_its_end(process)) processes += (processes.empty() ? "" : ", ") + std::to_string(process.pid);
  if (processes.empty()) return "";
  return "  process " + processes +
         " ended at once: allocated and the places are as of a second before its end or less; reserved, "
         "outside PyTorch and the whole card are as of its end\n";
}

// What was charged under a label, by how certain the figure is.
std::string parts_text(const Shown& shown) {
  if (!shown.device->card) return "";
  const CardView& card = *shown.device->card;
  std::map<cards::Certainty, std::string> parts;
  for (const auto& [label, bytes] : card.modelled_at_peak) {
    if (bytes == 0) continue;
    std::string& list = parts[certainty_of(card, label)];
    list += (list.empty() ? "" : ", ") + label + " " + size_text(bytes);
  }
  std::string text;
  for (const auto& [certainty, list] : parts)
    text += std::string("  of it ") + certainty_name(certainty) +
            (certainty == cards::Certainty::kModelled ? ", not measured: " : ": ") + list + "\n";
  return text;
}

// The columns are of the card's peak; other moments may have had more of one part.
std::string outside_text(const Shown& shown) {
  const Need need = need_of(*shown.device);
  if (need.outside_peak <= need.outside) return "";
  return "  outside PyTorch at another moment: " + size_text(need.outside_peak) + "\n";
}

std::string places_text(const std::vector<Held>& held, const std::map<uint32_t, Place>& places,
                        uint64_t allocated) {
  const std::vector<PlaceShare> shares = share_by_place(held, places);
  using enum Align;
  Table table({kRight, kRight, kRight, kLeft});
  table.add({"bytes", "share", "blocks", "place"});
  uint64_t listed = 0;
  for (size_t i = 0; i < std::min(kPlaces, shares.size()); ++i) {
    const PlaceShare& share = shares[i];
    listed += share.bytes;
    table.add({size_text(share.bytes), share_text(share.bytes, allocated), std::to_string(share.blocks),
               share.where + (share.caller.empty() ? "" : "  from " + share.caller)});
  }
  uint64_t known = 0, blocks = 0;
  for (size_t i = 0; i < shares.size(); ++i) {
    known += shares[i].bytes;
    if (i >= kPlaces) blocks += shares[i].blocks;
  }
  if (known > listed)
    table.add({size_text(known - listed), share_text(known - listed, allocated), std::to_string(blocks),
               "elsewhere (" + count_text(shares.size() - kPlaces, "place", "places") + ")"});
  if (allocated > known)
    table.add({size_text(allocated - known), share_text(allocated - known, allocated), "",
               "given by the allocator beyond what was asked for"});
  return table.text("  ");
}

// By what the memory is for, where an optimizer has shown it.
std::string kinds_text(const AllocatorView& view) {
  const uint64_t known = view.parameters + view.gradients + view.optimizer_state;
  if (known == 0 || known > view.peak_allocated) return "";
  return "  parameters and buffers " + size_text(view.parameters) + ", gradients " +
         size_text(view.gradients) + ", optimizer state " + size_text(view.optimizer_state) +
         ", activations and all else " + size_text(view.peak_allocated - known) + "\n";
}

std::string peak_text(const Rehearsal& rehearsal, const Shown& shown, const AllocatorView& view) {
  std::string text = "\nmemory over time on " +
                     device_name(rehearsal, *shown.process, shown.device->ordinal) +
                     " (by allocator event; █ in use, ░ cached)\n" +
                     plot_memory(view.timeline, view.steps, kColumns, kRows, "  ");
  const uint64_t steps = shown.process->steps;
  text += "\nat the peak of " + size_text(view.peak_allocated) + " allocated" +
          (steps == 0 ? "" : ", " + step_text(view.peak_step, steps)) + "\n";
  text += kinds_text(view);
  return text + places_text(view.held_at_peak, shown.process->places, view.peak_allocated);
}

std::string damage_text(const Rehearsal& rehearsal) {
  std::string text;
  for (const Observation& process : rehearsal.processes) {
    if (!process.problem.empty()) text += "note: " + process.problem + "\n";
    if (process.unreported > 0)
      text += "note: " +
              (process.unreported == 1 ? "process " + std::to_string(process.pid)
                                       : std::to_string(process.unreported) + " processes") +
              " left no report: " + (process.unreported == 1 ? "its" : "their") +
              " memory is counted, its places are not known\n";
  }
  for (const std::string& one : rehearsal.damaged) text += "note: a result cannot be read: " + one + "\n";
  return text.empty() ? "" : "\n" + text;
}

}  // namespace

std::string command_text(const Words& words) {
  std::string text;
  for (const std::string& word : words) {
    const bool plain = !word.empty() && word.find_first_of(" \t\n'\"\\$*?;&|<>()") == std::string::npos;
    text += (text.empty() ? "" : " ") + (plain ? word : "'" + word + "'");
  }
  return text;
}

std::string machine_text(const Rehearsal& rehearsal) {
  for (const Observation& process : rehearsal.processes) {
    for (const auto& [ordinal, device] : process.devices) {
      if (!device.card) continue;
      const std::string count =
          process.devices.size() > 1 ? std::to_string(process.devices.size()) + " × " : "";
      return count + (device.card->card.empty() ? "a card" : device.card->card) + " of " +
             size_text(device.card->capacity);
    }
  }
  return rehearsal.card.empty() ? "no card" : rehearsal.card;
}

// The environment and the program have a say in it too.
std::string allocator_text(const RunOptions& options, const Rehearsal& rehearsal) {
  if (options.allocator != "native") return options.allocator;
  for (const Observation& process : rehearsal.processes) {
    if (!process.has_probe || process.allocator.empty()) continue;
    return process.allocator +
           (process.expandable_segments ? " with expandable segments (the program's own setting)" : "");
  }
  return options.allocator;
}

std::string card_bars_text(const Rehearsal& rehearsal) {
  if (decide(rehearsal) != Fit::kFits) return "";  // what was left over is no room to spare
  std::string text;
  const std::vector<CardNeed> cards = needs_of(rehearsal);
  for (const CardNeed& card : cards) {
    const std::string bar = memory_bar(card_parts(card.need));
    if (bar.empty()) continue;
    text += "  " + (cards.size() > 1 ? "GPU " + std::to_string(card.physical) + "  " : std::string()) + bar +
            "\n";
  }
  return text;
}

std::vector<BarPart> card_parts(const Need& need) {
  const uint64_t of_pytorch = need.peak - std::min(need.outside, need.peak);
  const uint64_t in_use = std::min(need.allocated, of_pytorch);
  return {{Mark::kInUse, "in use", in_use},
          {Mark::kCached, "cached", of_pytorch - in_use},
          {Mark::kOutside, "outside", need.peak - of_pytorch},
          {Mark::kFree, "free", need.capacity - std::min(need.peak, need.capacity)}};
}

const char* fit_text(Fit fit) {
  switch (fit) {
    case Fit::kFits:
      return "fits";
    case Fit::kDoesNotFit:
      return "does not fit";
    case Fit::kWentOn:
      return "ran out of memory, but went on";
    case Fit::kProgramFailed:
      return "no verdict: the program failed";
    case Fit::kNoDevice:
      return "no verdict: no device was used";
    case Fit::kNoKernels:
      return "cannot run there: no kernels for this card";
  }
  return "";
}

std::string verdict_text(const RunOptions& options, const Rehearsal& rehearsal) {
  const std::string condition = fits_if(options, rehearsal);
  if (rehearsal.stopped_by != 0 && decide(rehearsal) == Fit::kProgramFailed)
    return "no verdict: the program was stopped";
  return fit_text(decide(rehearsal)) + (condition.empty() ? "" : ", " + condition);
}

bool is_own_code(int exit_code) {
  static constexpr int kCodes[] = {kUsageError, kUnreadableTrace, kUnwritable, kDoesNotFit, kRanOutAndWentOn,
                                   kOverBudget, kNoDevice,        kNoKernels,  kCannotRun,  kNotFound};
  return std::find(std::begin(kCodes), std::end(kCodes), exit_code) != std::end(kCodes);
}

int exit_code_of(const Rehearsal& rehearsal) {
  return exit_code_of(decide(rehearsal), rehearsal.exit_code);
}

std::string values_of(const RunOptions& options, const Rehearsal& rehearsal) {
  for (const Observation& process : rehearsal.processes)
    if (!process.values.empty()) return process.values;
  return options.machine.values.value_or("zeros");
}

int exit_code_of(Fit fit, int program_exit_code) {
  switch (fit) {
    case Fit::kFits:
      return kSuccess;
    case Fit::kDoesNotFit:
      return kDoesNotFit;
    case Fit::kWentOn:
      return kRanOutAndWentOn;
    case Fit::kNoDevice:
      return kNoDevice;
    case Fit::kNoKernels:
      return kNoKernels;
    case Fit::kProgramFailed:
      break;
  }
  return program_exit_code;
}

std::string device_name(const Rehearsal& rehearsal, const Observation& process, int device) {
  const auto found = process.devices.find(device);
  const int physical = found == process.devices.end() ? device : physical_of(found->second);
  std::string name = "GPU " + std::to_string(physical);
  if (physical != device) name += " (its cuda:" + std::to_string(device) + ")";
  if (rehearsal.processes.size() < 2) return name;
  if (process.unreported > 1) return "each of " + std::to_string(process.unreported) + " processes " + name;
  return (process.rank ? "rank " + std::to_string(*process.rank) : "process " + std::to_string(process.pid)) +
         " " + name;
}

std::string report_text(const RunOptions& options, const Rehearsal& rehearsal,
                        const Explanation& explanation) {
  const std::vector<Shown> devices = used_devices(rehearsal);
  std::string text = headline(options, rehearsal);
  text += failure_text(options, rehearsal);
  if (decide(rehearsal) == Fit::kNoKernels) return text;  // what it took until then says nothing of its need
  if (const std::string further = explain(explanation); !further.empty()) text += "\n" + further;
  if (devices.empty()) {
    text += "\nno memory of a device was used\n";
    if (decide(rehearsal) == Fit::kNoDevice && failure_line(rehearsal).empty())
      text +=
          "  is it a CUDA build of PyTorch, and does the program choose the device (--device, "
          "CUDA_VISIBLE_DEVICES)?\n";
    return text + damage_text(rehearsal);
  }
  text += "\n" + device_table(rehearsal, devices) + moments_text(rehearsal) + card_bars_text(rehearsal);
  const Shown* most = fullest(devices);
  text += parts_text(*most) + outside_text(*most);
  const std::optional<AllocatorView>& view = most->device->allocator;
  if (view && view->events > 0) text += peak_text(rehearsal, *most, *view);
  text += "\n" + condition_text(options, rehearsal);
  return text + damage_text(rehearsal);
}

}  // namespace spillway::tools
