#include "tools/spillway/run/summary.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <system_error>

#include "tools/spillway/units.h"

namespace spillway::tools {
namespace {

using interpose::ProcessSummary;
using interpose::SummaryFile;

// A text that another process wrote into a field of fixed size.
template <size_t size>
std::string text_of(const char (&field)[size]) {
  return {field, strnlen(field, size)};
}

uint64_t read(const uint64_t& counter) {
  return __atomic_load_n(&counter, __ATOMIC_RELAXED);
}

void add(const spillway_incident_totals& from, spillway_incident_totals* to) {
  to->failures += read(from.failures);
  to->rescued += read(from.rescued);
  to->unwound += read(from.unwound);
  to->gave_up += read(from.gave_up);
  to->rescued_bytes += read(from.rescued_bytes);
  to->rescue_us += read(from.rescue_us);
}

void add_once(const std::string& text, std::vector<std::string>* texts) {
  if (std::ranges::find(*texts, text) == texts->end()) texts->push_back(text);
}

void add(const ProcessSummary& process, RunTotals* totals) {
  ++totals->processes;
  for (const interpose::CallCounts& thread : process.calls) {
    totals->driver_calls += thread.driver_calls.load();
    totals->launches += thread.launches.load();
  }
  add(process.incidents, &totals->incidents);
  const auto replacement = process.replacement.load();
  if (replacement == interpose::Replacement::kDone) ++totals->replaced;
  if (process.membership.load() == interpose::Membership::kRefused) ++totals->alone;
  if (replacement == interpose::Replacement::kRefused) add_once(text_of(process.note), &totals->refusals);
  if (const std::string names = text_of(process.unlisted); !names.empty()) add_once(names, &totals->unlisted);
  if (const int major = process.runtime_major.load(); major != 0) {
    totals->runtime_major = major;
    totals->driver_version = process.driver_version.load();
  }
  const std::string trace = text_of(process.trace);
  if (trace.empty()) return;
  (read(process.incidents.failures) != 0 ? totals->traces : totals->clean_traces).push_back(trace);
}

}  // namespace

SharedSummary::~SharedSummary() {
  if (file_ != nullptr) ::munmap(file_, sizeof(SummaryFile));
  if (descriptor_ >= 0) ::close(descriptor_);
}

bool SharedSummary::open(std::string* error) {
  descriptor_ = ::memfd_create("spillway-run", MFD_CLOEXEC);
  void* at = MAP_FAILED;
  if (descriptor_ >= 0 && ::ftruncate(descriptor_, sizeof(SummaryFile)) == 0)
    at = ::mmap(nullptr, sizeof(SummaryFile), PROT_READ | PROT_WRITE, MAP_SHARED, descriptor_, 0);
  if (at == MAP_FAILED) {
    *error = "no memory for the run's summary: " + std::generic_category().message(errno);
    return false;
  }
  file_ = static_cast<SummaryFile*>(at);
  file_->magic = interpose::kSummaryMagic;
  file_->layout = sizeof(ProcessSummary);
  file_->slots = interpose::kSummarySlots;
  path_ = "/proc/" + std::to_string(::getpid()) + "/fd/" + std::to_string(descriptor_);
  return true;
}

RunTotals SharedSummary::totals() const {
  RunTotals totals;
  for (const ProcessSummary& process : file_->processes)
    if (process.process.load() != 0) add(process, &totals);
  totals.processes += static_cast<unsigned>(file_->without_slot.load());
  return totals;
}

std::vector<ProcessState> SharedSummary::processes() const {
  std::vector<ProcessState> processes;
  for (size_t place = 0; place < interpose::kSummarySlots; ++place) {
    const ProcessSummary& process = file_->processes[place];
    if (const int number = process.process.load(); number != 0)
      processes.push_back({place, number, read(process.incidents.gave_up), text_of(process.trace)});
  }
  return processes;
}

// Where a runtime found the driver too old, and nothing ran.
std::string too_old_line(const RunTotals& totals) {
  const std::string runtime = std::to_string(totals.runtime_major);
  const int driver = totals.driver_version;
  return "the program's CUDA runtime is of CUDA " + runtime + " and the driver serves CUDA " +
         std::to_string(driver / 1000) + "." + std::to_string(driver % 1000 / 10) +
         ": its calls fail with cudaErrorInsufficientDriver; update the driver, or use a build for CUDA " +
         std::to_string(driver / 1000);
}

std::string summary_line(const RunTotals& totals, interpose::Mode mode) {
  if (totals.processes == 0) return "the program did not use CUDA";
  const spillway_incident_totals& met = totals.incidents;
  // Who met a failure of memory has a driver that serves it, whichever runtime else is loaded.
  if (totals.runtime_major != 0 && totals.launches == 0 && met.failures == 0) return too_old_line(totals);
  std::string line;
  if (met.failures == 0) {
    // What PyTorch's own allocator refuses by a limit of its own asks no driver.
    line = std::string("no memory failure") + (mode == interpose::Mode::kReplace ? "" : " of a driver call");
  } else {
    line = count_text(met.failures, "memory failure", "memory failures") + " met, ";
    if (mode == interpose::Mode::kObserve) {
      line += "only observed";
    } else {
      line += std::to_string(met.rescued) + " rescued";
      if (met.rescued != 0)
        line += " (" + size_text(met.rescued_bytes) + " in " + duration_text(met.rescue_us) + ")";
      if (met.unwound != 0) line += ", " + std::to_string(met.unwound) + " left to the program's plan";
      if (met.gave_up != 0) line += ", " + std::to_string(met.gave_up) + " not";
    }
  }
  return line + "; " + count_text(totals.processes, "process", "processes") + ", " +
         count_text(totals.driver_calls, "driver call", "driver calls") + ", " +
         count_text(totals.launches, "launch", "launches");
}

}  // namespace spillway::tools
