#include "tools/spillway/rehearse/report_text.h"

#include <algorithm>
#include <cstdio>

#include "spillway/allocator/verdict.h"
#include "tools/spillway/rehearse/places.h"
#include "tools/spillway/rehearse/plot.h"
#include "tools/spillway/report/table.h"
#include "tools/spillway/units.h"

namespace spillway::tools {
namespace {

constexpr size_t kPlaces = 12, kColumns = 64, kRows = 8;

std::string percent(uint64_t part, uint64_t whole) {
  char text[32];
  std::snprintf(text, sizeof text, "%.1f%%",
                whole == 0 ? 0.0 : 100.0 * static_cast<double>(part) / static_cast<double>(whole));
  return text;
}

std::string joined(const Words& words) {
  std::string text;
  for (const std::string& word : words) {
    const bool plain = !word.empty() && word.find_first_of(" \t\n'\"\\$*?;&|<>()") == std::string::npos;
    text += (text.empty() ? "" : " ") + (plain ? word : "'" + word + "'");
  }
  return text;
}

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

std::string steps_text(const Rehearsal& rehearsal) {
  uint64_t steps = 0;
  bool ended = false;
  for (const Observation& process : rehearsal.processes) {
    steps = std::max(steps, process.steps);
    ended |= process.ended_by_steps;
  }
  if (steps == 0) return "no optimizer step seen";
  return count_text(steps, "optimizer step", "optimizer steps") + (ended ? " (ended there by --steps)" : "");
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

std::string headline(const RunOptions& options, const Rehearsal& rehearsal) {
  const Fit fit = decide(rehearsal);
  std::string text = std::string(fit_text(fit)) + ": " + joined(options.command) + "\n";
  char seconds[32];
  std::snprintf(seconds, sizeof seconds, "%.1f s", rehearsal.seconds);
  text += "  on " + machine_text(rehearsal) + ", allocator " + allocator_text(options, rehearsal) +
          ", values " + values_of(options, rehearsal) + "; " + steps_text(rehearsal) + ", " + seconds + "\n";
  return text;
}

std::string margin_text(const Need& need) {
  if (need.capacity == 0 || need.peak > need.capacity) return "-";
  const uint64_t margin = need.capacity - need.peak;
  return size_text(margin) + " (" + percent(margin, need.capacity) + ")";
}

// A row for each process, and where several share a card one for all of them: only that one has a margin.
std::string device_table(const Rehearsal& rehearsal, const std::vector<Shown>& devices) {
  using enum Align;
  Table table({kLeft, kRight, kRight, kRight, kRight, kRight});
  table.add({"peak by device", "allocated", "reserved", "outside PyTorch", "whole card", "margin"});
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
        add(name, card.need, split, margin_text(card.need));
    }
    if (card.processes > 1)
      add("GPU " + std::to_string(card.physical) + ", all " + std::to_string(card.processes) + " processes",
          card.need, all_split, margin_text(card.need));
  }
  return table.text("");
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
  uint64_t listed = 0;
  for (size_t i = 0; i < std::min(kPlaces, shares.size()); ++i) {
    const PlaceShare& share = shares[i];
    listed += share.bytes;
    table.add({size_text(share.bytes), percent(share.bytes, allocated),
               count_text(share.blocks, "block", "blocks"),
               share.where + (share.caller.empty() ? "" : "  from " + share.caller)});
  }
  uint64_t known = 0, blocks = 0;
  for (size_t i = 0; i < shares.size(); ++i) {
    known += shares[i].bytes;
    if (i >= kPlaces) blocks += shares[i].blocks;
  }
  if (known > listed)
    table.add({size_text(known - listed), percent(known - listed, allocated),
               count_text(blocks, "block", "blocks"),
               "elsewhere (" + count_text(shares.size() - kPlaces, "place", "places") + ")"});
  if (allocated > known)
    table.add({size_text(allocated - known), percent(allocated - known, allocated), "",
               "given by the allocator beyond what was asked for"});
  return table.text("  ");
}

std::string peak_text(const Rehearsal& rehearsal, const Shown& shown, const AllocatorView& view) {
  std::string text = "\nmemory over time on " +
                     device_name(rehearsal, *shown.process, shown.device->ordinal) +
                     " (by allocator event; █ allocated, ░ reserved)\n" +
                     plot_memory(view.timeline, view.steps, kColumns, kRows, "  ");
  text += "\nat the peak of " + size_text(view.peak_allocated) + " allocated, in step " +
          std::to_string(view.peak_step) + "\n";
  return text + places_text(view.held_at_peak, shown.process->places, view.peak_allocated);
}

std::string indented(const std::string& text) {
  std::string out = "  ";
  for (const char c : text) out += c == '\n' ? std::string("\n  ") : std::string(1, c);
  return out + "\n";
}

std::string refused_text(const Rehearsal& rehearsal) {
  std::string text;
  for (const Observation& process : rehearsal.processes) {
    if (failed_requests(process).outside == 0) continue;
    for (const auto& [ordinal, device] : process.devices) {
      if (!device.card || device.card->refused == 0) continue;
      std::string parts;
      for (const auto& [label, count] : device.card->refused_parts)
        parts += (parts.empty() ? " for " : ", ") + label + " (" + std::to_string(count) + " ×)";
      text += "  " + device_name(rehearsal, process, ordinal) + " refused " +
              count_text(device.card->refused, "request", "requests") +
              ", not all of them PyTorch's allocator's" + parts + "; the first was for " +
              size_text(device.card->first_refused_bytes) + " with " +
              size_text(device.card->first_refused_free) + " free\n";
    }
  }
  return text;
}

std::string unsure_text(const Rehearsal& rehearsal) {
  const uint64_t unsure = failed_requests(rehearsal).unsure;
  if (unsure == 0) return "";
  return "\nthe card refused " + count_text(unsure, "request", "requests") +
         " that PyTorch's allocator may have served another way: whether the program itself saw one is not "
         "known\n";
}

std::string uncaught_text(const Rehearsal& rehearsal) {
  for (const Observation& process : rehearsal.processes)
    if (!process.uncaught_type.empty())
      return indented(process.uncaught_type + ": " + process.uncaught_message);
  return "";
}

std::string failure_text(const Rehearsal& rehearsal) {
  const FailureOf found = deciding_failure(rehearsal);
  const FailedRequests failed = failed_requests(rehearsal);
  if (failed.seen() == 0) return unsure_text(rehearsal);
  const Fit fit = decide(rehearsal);
  std::string text = "\n" + count_text(failed.seen(), "request", "requests") + " failed" +
                     (fit == Fit::kWentOn ? ", and the program went on" : "") + "\n";
  if (found.failure != nullptr) {
    const Failure& failure = *found.failure;
    text += "  asked " + size_text(failure.requested) + " on " +
            device_name(rehearsal, *found.process, failure.device) + " in step " +
            std::to_string(failure.step);
    if (const auto place = found.process->places.find(failure.place); place != found.process->places.end())
      text += ", at " + place_text(place->second);
    text += "\n  " + cause_of(found) + "\n";
  }
  text += refused_text(rehearsal);
  if (fit == Fit::kDoesNotFit) {
    const bool known = found.process != nullptr && !found.process->uncaught_message.empty();
    text += known ? indented(found.process->uncaught_type + ": " + found.process->uncaught_message)
                  : uncaught_text(rehearsal);
  }
  return text + unsure_text(rehearsal);
}

// What is known of memory where the program failed for another reason, or for one that is not known.
std::string without_verdict_text(const Rehearsal& rehearsal) {
  if (const uint64_t failed = failed_requests(rehearsal).seen(); failed > 0)
    return ", after " + count_text(failed, "failed request", "failed requests") +
           ": nothing shows that one of them ended it";
  if (refused_anything(rehearsal))
    return ", and not by a request that it is known to have seen fail, though the card refused some";
  return ", and not for lack of memory";
}

std::string program_failure_text(const Rehearsal& rehearsal) {
  const Fit fit = decide(rehearsal);
  if (fit == Fit::kNoKernels)
    return "\nits kernels are not built for this kind of card: the same program fails on a real one\n" +
           uncaught_text(rehearsal);
  if (fit != Fit::kProgramFailed) return "";
  const int code = rehearsal.exit_code;
  std::string text = "\nthe program ended with exit code " + std::to_string(code);
  if (code > 128) text += " (signal " + std::to_string(code - 128) + ")";
  text += without_verdict_text(rehearsal) + "\n";
  if (code >= kDoesNotFit && code <= kNoKernels)
    text += "  the code is the program's own: as an exit code of spillway it would be a verdict\n";
  text += uncaught_text(rehearsal);
  const ReadTotals reads = reads_of(rehearsal);
  if (reads.decide())
    text += "  it had read values that nothing computed: --values random or --values compute gives others\n";
  return text;
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
    if (process.has_probe && !process.complete)
      text += "note: process " + std::to_string(process.pid) +
              " ended without a last word; its figures may lack its last second\n";
  }
  for (const std::string& one : rehearsal.damaged) text += "note: a result can not be read: " + one + "\n";
  return text.empty() ? "" : "\n" + text;
}

}  // namespace

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
      return "can not run there: no kernels for this card";
  }
  return "";
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
                        const std::vector<Counterfactual>& others) {
  const std::vector<Shown> devices = used_devices(rehearsal);
  std::string text = headline(options, rehearsal);
  text += program_failure_text(rehearsal);
  if (decide(rehearsal) == Fit::kNoKernels) return text;  // what it took until then says nothing of its need
  text += failure_text(rehearsal);
  if (const std::string further = explain(rehearsal, others); !further.empty()) text += "\n" + further;
  if (devices.empty()) {
    text += "\nno memory of a device was used\n";
    if (decide(rehearsal) == Fit::kNoDevice)
      text +=
          "  is it a CUDA build of PyTorch, and does the program choose the device (--device, "
          "CUDA_VISIBLE_DEVICES)?\n";
    return text + damage_text(rehearsal);
  }
  text += "\n" + device_table(rehearsal, devices);
  const Shown* most = fullest(devices);
  text += parts_text(*most) + outside_text(*most);
  const std::optional<AllocatorView>& view = most->device->allocator;
  if (view && view->events > 0) text += peak_text(rehearsal, *most, *view);
  text += "\n" + condition_text(options, rehearsal);
  return text + damage_text(rehearsal);
}

}  // namespace spillway::tools
