#include "tools/spillway/rehearse/judge/failure_text.h"

#include <signal.h>

#include <algorithm>
#include <cstring>

#include "allocator/request/verdict.h"
#include "tools/spillway/rehearse/judge/diagnosis.h"
#include "tools/spillway/rehearse/judge/places.h"
#include "tools/spillway/rehearse/report/report_text.h"
#include "tools/spillway/units.h"

namespace spillway::tools {
namespace {

constexpr int kSignal = 128;

std::string indented(const std::string& text) {
  std::string out = "  ";
  for (const char c : text) out += c == '\n' ? std::string("\n  ") : std::string(1, c);
  return out + "\n";
}

std::string error_of(const Observation& process) {
  return process.uncaught_type + (process.uncaught_message.empty() ? "" : ": " + process.uncaught_message);
}

// The error that nobody caught: of the process whose request failed, or of the first that has one.
std::string uncaught_error(const Rehearsal& rehearsal) {
  const FailureOf found = deciding_failure(rehearsal);
  if (found.process != nullptr && !found.process->uncaught_message.empty()) return error_of(*found.process);
  for (const Observation& process : rehearsal.processes)
    if (!process.uncaught_type.empty()) return error_of(process);
  return "";
}

std::string uncaught_text(const Rehearsal& rehearsal) {
  const std::string error = uncaught_error(rehearsal);
  return error.empty() ? "" : indented(error);
}

std::string refused_parts(const CardView& card) {
  std::string parts;
  for (const auto& [label, count] : card.refused_parts)
    parts += (parts.empty() ? " for " : ", ") + label + " (" + std::to_string(count) + " ×)";
  return parts;
}

std::string refused_text(const Rehearsal& rehearsal) {
  std::string text;
  for (const Observation& process : rehearsal.processes) {
    if (failed_requests(process).outside == 0) continue;
    for (const auto& [ordinal, device] : process.devices) {
      if (!device.card || device.card->refused == 0) continue;
      text += "  " + device_name(rehearsal, process, ordinal) + " refused " +
              count_text(device.card->refused, "request", "requests") +
              ", not all of them PyTorch's allocator's" + refused_parts(*device.card) +
              "; the first was for " + size_text(device.card->first_refused_bytes) + " with " +
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

// "asked 64.00 MiB on GPU 0 in step 2, at model.py:7 forward".
std::string request_text(const Rehearsal& rehearsal, const FailureOf& found) {
  const Failure& failure = *found.failure;
  std::string text = "asked " + size_text(failure.requested) + " on " +
                     device_name(rehearsal, *found.process, failure.device) + " " +
                     step_text(failure.step, found.process->steps);
  if (const auto place = found.process->places.find(failure.place); place != found.process->places.end())
    text += ", at " + place_text(place->second);
  return text;
}

std::string diagnosis_text(const Diagnosis& diagnosis) {
  const std::string advice = advice_of(diagnosis);
  return "  " + line_of(diagnosis) + "\n" + (advice.empty() ? "" : "  " + advice + "\n");
}

std::string others_text(const FailedRequests& failed) {
  return failed.allocator < 2 ? "" : " (" + std::to_string(failed.allocator - 1) + " more are in --json)";
}

std::string failed_requests_text(const Rehearsal& rehearsal) {
  const FailedRequests failed = failed_requests(rehearsal);
  if (failed.seen() == 0) return unsure_text(rehearsal);
  const Fit fit = decide(rehearsal);
  std::string text = "\n" + count_text(failed.seen(), "request", "requests") + " failed" +
                     (fit == Fit::kWentOn ? ", and the program went on" : "") + "\n";
  if (const auto diagnosis = diagnose(rehearsal))
    text += "  " + request_text(rehearsal, deciding_failure(rehearsal)) + others_text(failed) + "\n" +
            diagnosis_text(*diagnosis);
  text += refused_text(rehearsal);
  if (fit == Fit::kDoesNotFit) text += uncaught_text(rehearsal);
  return text + unsure_text(rehearsal);
}

// Why the program found no device that works, where its own CUDA runtime is the reason.
std::string other_runtime_line(const Rehearsal& rehearsal) {
  for (const Observation& process : rehearsal.processes)
    if (!process.other_runtime.empty())
      return process.other_runtime +
             " brings a CUDA runtime of its own, which works with NVIDIA's driver only: link the shared "
             "runtime of CUDA 13 (nvcc -cudart shared)";
  return "";
}

std::string other_runtime_text(const Rehearsal& rehearsal) {
  const std::string line = other_runtime_line(rehearsal);
  return line.empty() ? "" : indented(line);
}

// What is known of memory where the program failed for another reason, or for one that is not known.
std::string without_verdict_text(const Rehearsal& rehearsal) {
  if (const uint64_t failed = failed_requests(rehearsal).seen(); failed > 0)
    return ", after " + count_text(failed, "failed request", "failed requests") +
           ": nothing shows that one of them ended it";
  if (refused_anything(rehearsal))
    return ", and not by a request that it is known to have seen fail, though the card refused some";
  return ", and not for lack of the card's memory";
}

std::string end_text(const Rehearsal& rehearsal) {
  const int code = rehearsal.exit_code;
  if (rehearsal.stopped_by != 0)
    return std::string("stopped by a signal (") + ::strsignal(rehearsal.stopped_by) +
           "): what it needs is only known as far as it came";
  std::string text = "the program ended with exit code " + std::to_string(code);
  if (code > kSignal && code - kSignal < NSIG)
    text += " (signal " + std::to_string(code - kSignal) + ", " + ::strsignal(code - kSignal) + ")";
  text += without_verdict_text(rehearsal);
  if (code == kSignal + SIGKILL)
    text += "; the kernel ends programs so when the host, not the card, runs out of memory";
  return text;
}

// Whether what the program read from a device may be why it failed: it raised what a wrong value leads to, or
// chose to end.
bool may_be_for_a_value(const RunOptions& options, const Rehearsal& rehearsal) {
  static constexpr const char* kTypes[] = {"ArithmeticError",   "AssertionError", "FloatingPointError",
                                           "IndexError",        "OverflowError",  "RuntimeError",
                                           "ZeroDivisionError", "ValueError"};
  if (!is_conditional(values_of(options, rehearsal), rehearsal) || rehearsal.exit_code > kSignal)
    return false;
  const std::string error = uncaught_error(rehearsal), type = error.substr(0, error.find(':'));
  return type.empty() || std::any_of(std::begin(kTypes), std::end(kTypes), [&](const char* name) {
           return type == std::string("builtins.") + name;
         });
}

std::string program_failure_text(const RunOptions& options, const Rehearsal& rehearsal) {
  const Fit fit = decide(rehearsal);
  if (fit == Fit::kNoKernels)
    return "\nits kernels are not built for this kind of card: the same program fails on a real one\n" +
           uncaught_text(rehearsal);
  if (fit == Fit::kNoDevice) {
    const std::string cause = other_runtime_text(rehearsal);
    return cause.empty() ? "" : "\n" + cause;
  }
  if (fit != Fit::kProgramFailed) return "";
  std::string text = "\n" + end_text(rehearsal) + "\n";
  if (rehearsal.stopped_by != 0) return text;
  text += other_runtime_text(rehearsal);
  if (is_own_code(rehearsal.exit_code))
    text += "  the code is the program's own: as an exit code of spillway it would mean something else\n";
  text += uncaught_text(rehearsal);
  if (may_be_for_a_value(options, rehearsal))
    text += values_of(options, rehearsal) == "zeros"
                ? "  it had read values that nothing computed, which may be why: --values compute gives true "
                  "ones, --values random others\n"
                : "  it had read values that nothing computed, which may be why: --values compute gives true "
                  "ones\n";
  return text;
}

std::string first_line(const std::string& text) {
  return text.substr(0, text.find('\n'));
}

// The first request outside PyTorch's allocator that a card refused.
std::string refused_line(const Rehearsal& rehearsal) {
  const std::string text = refused_text(rehearsal);
  return text.empty() ? "" : first_line(text.substr(text.find_first_not_of(' ')));
}

std::string memory_line(const Rehearsal& rehearsal) {
  const auto diagnosis = diagnose(rehearsal);
  if (!diagnosis) return refused_line(rehearsal);
  return request_text(rehearsal, deciding_failure(rehearsal)) + ": " + line_of(*diagnosis);
}

}  // namespace

std::string step_text(uint64_t step, uint64_t steps) {
  if (steps == 0) return "before any optimizer step";
  return step > steps ? "after step " + std::to_string(steps) : "in step " + std::to_string(step);
}

std::string failure_text(const RunOptions& options, const Rehearsal& rehearsal) {
  return program_failure_text(options, rehearsal) + failed_requests_text(rehearsal);
}

std::string failure_line(const Rehearsal& rehearsal) {
  const Fit fit = decide(rehearsal);
  if (fit == Fit::kFits) return "";
  if (fit == Fit::kNoDevice) return other_runtime_line(rehearsal);
  if (fit == Fit::kDoesNotFit || fit == Fit::kWentOn)
    if (std::string line = memory_line(rehearsal); !line.empty()) return line;
  std::string error = first_line(uncaught_error(rehearsal));
  if (fit != Fit::kProgramFailed) return error;
  const std::string cause = other_runtime_line(rehearsal);
  return end_text(rehearsal) + (error.empty() ? "" : "; " + error) + (cause.empty() ? "" : "; " + cause);
}

}  // namespace spillway::tools
