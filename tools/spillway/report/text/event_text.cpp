#include <iterator>

#include "tools/spillway/report/render.h"
#include "tools/spillway/units.h"

namespace spillway::tools {
namespace {

using trace::Kind;
using trace::Record;

std::string incident_text(const Record& record) {
  return "incident " + std::to_string(record.value);
}

std::string block_text(const Record& record) {
  std::string text = size_text(record.bytes) + " at " + address_text(record.address);
  if (record.requested != 0 && record.requested != record.bytes)
    text += ", " + size_text(record.requested) + " asked";
  return text + ", stream " + address_text(record.stream);
}

std::string mapping_text(const Record& record) {
  std::string text = size_text(record.bytes);
  if (record.address != 0) text += " at " + address_text(record.address);
  if (record.value != 0) text += ", CUresult " + std::to_string(record.value);
  return text;
}

std::string step_text(const Record& record) {
  std::string text = "step " + std::to_string(record.address);
  if (record.bytes != 0) text += ", attempt " + std::to_string(record.bytes);
  if (record.kind == Kind::kStepEnd && record.detail != 0)
    text += ", " + std::to_string(record.detail) + " tokens";
  return text;
}

std::string quoted_name(const trace::Contents& contents, uint64_t index) {
  const std::string name = name_of(contents, index);
  return name.empty() ? "?" : name;
}

// The innermost frame of a stack.
std::string first_line(const std::string& stack) {
  return stack.substr(0, stack.find('\n'));
}

}  // namespace

const char* kind_name(Kind kind) {
  static constexpr const char* kNames[] = {"none",
                                           "allocate",
                                           "free",
                                           "free pending",
                                           "segment reserve",
                                           "segment release",
                                           "page create",
                                           "page map",
                                           "page unmap",
                                           "page release",
                                           "driver failure",
                                           "oom",
                                           "oom term",
                                           "ladder step",
                                           "ladder outcome",
                                           "phase",
                                           "step begin",
                                           "step end",
                                           "plan change",
                                           "memory",
                                           "note",
                                           "oom context",
                                           "move",
                                           "refusal",
                                           "site",
                                           "holder",
                                           "oom site",
                                           "course",
                                           "process",
                                           "slowdown",
                                           "optimizer step",
                                           "oom step",
                                           "held"};
  const auto index = static_cast<size_t>(kind);
  return index < std::size(kNames) ? kNames[index] : "unknown";
}

// Where a move went: the numbers are those of the allocator's tiers.
static std::string tier_text(const Record& record) {
  constexpr uint64_t kDevice = 0, kPeer = 1, kHost = 2, kNvme = 3;
  switch (record.requested) {
    case kDevice:
      return "on the device";
    case kPeer:
      return "on device " + std::to_string(record.detail);
    case kHost:
      return "in host memory";
    case kNvme:
      return "in a file";
    default:
      return "in another place";
  }
}

std::string event_text(const trace::Contents& contents, const Record& record) {
  switch (record.kind) {
    case Kind::kAllocate:
    case Kind::kFree:
    case Kind::kFreePending:
      return block_text(record);
    case Kind::kSegmentReserve:
    case Kind::kSegmentRelease:
    case Kind::kPageCreate:
    case Kind::kPageMap:
    case Kind::kPageUnmap:
    case Kind::kPageRelease:
      return mapping_text(record);
    case Kind::kDriverFailure:
      return quoted_name(contents, record.detail) + ", CUresult " + std::to_string(record.value) + ", " +
             size_text(record.bytes);
    case Kind::kOom:
      return incident_text(record) + ": " + size_text(record.requested) + " asked, " +
             size_text(record.address) + " short";
    case Kind::kOomEquation:
      return incident_text(record) + ": " + term_name(static_cast<trace::Term>(record.detail)) + " " +
             size_text(record.bytes);
    case Kind::kLadderStep:
      return incident_text(record) + ": " + quoted_name(contents, record.detail) + " gave " +
             size_text(record.bytes) + " in " + duration_text(record.address);
    case Kind::kRefusal:
      return incident_text(record) + ": not " + quoted_name(contents, record.detail) + ": " +
             quoted_name(contents, record.requested);
    case Kind::kMove:
      return size_text(record.bytes) + " at " + address_text(record.address) + " now lies " +
             tier_text(record) + ", CUresult " + std::to_string(record.value);
    case Kind::kLadderOutcome:
      return incident_text(record) + ": " + outcome_text(static_cast<trace::Outcome>(record.detail)) + ", " +
             size_text(record.bytes) + " gained in " + duration_text(record.address);
    case Kind::kStepBegin:
    case Kind::kStepEnd:
      return step_text(record);
    case Kind::kPlanChange:
      return "from step " + std::to_string(record.address) + ": " + quoted_name(contents, record.detail);
    case Kind::kMemory:
      return size_text(record.address) + " live, " + size_text(record.bytes) + " reserved, limit " +
             size_text(record.requested);
    case Kind::kOomContext:
      return incident_text(record) + ": pool " + std::to_string(record.address) + ", attempt " +
             std::to_string(record.bytes);
    case Kind::kSite:
      return size_text(record.bytes) + " at " + address_text(record.address) + ": " +
             first_line(quoted_name(contents, record.detail));
    case Kind::kHolder:
      return incident_text(record) + ": " + size_text(record.bytes) + " of " +
             first_line(quoted_name(contents, record.detail));
    case Kind::kHeld:
      return record.flags != 0
                 ? size_text(record.bytes) + " in use by all places"
                 : size_text(record.bytes) + " of " + first_line(quoted_name(contents, record.detail));
    case Kind::kProcess:
      return incident_text(record) + ": process " + std::to_string(record.address) + " holds " +
             size_text(record.bytes);
    case Kind::kSlowdown:
      return slowdown_text(slowdown_of(record)) + " with " + size_text(record.bytes) + " in other tiers";
    case Kind::kCourse:
      return incident_text(record) + ": earlier " + size_text(record.address) + " in use, " +
             size_text(record.bytes) + " held";
    case Kind::kOomSite:
      return incident_text(record) + ": asked by " + first_line(quoted_name(contents, record.detail));
    case Kind::kPhase:
      return record.detail == 0 ? "none" : quoted_name(contents, record.detail);
    case Kind::kOomStep:
      return incident_text(record) + ": after optimizer step " + std::to_string(record.address) + " began";
    case Kind::kNote:
    case Kind::kOptimizerStep:
      return quoted_name(contents, record.detail);
    default:
      return "kind " + std::to_string(static_cast<unsigned>(record.kind));
  }
}

}  // namespace spillway::tools
