#include "tools/spillway/report/trace/trace_events.h"

#include <algorithm>
#include <unordered_map>

#include "tools/spillway/report/render.h"
#include "tools/spillway/report/site.h"
#include "tools/spillway/report/trace/trace_parts.h"

namespace spillway::tools {
namespace {

using trace::Kind;
using trace::Record;

// Places of addresses tell nothing of what happened, samples and what stands above in the report neither.
bool is_told(const Record& record) {
  switch (record.kind) {
    case Kind::kAllocate:
    case Kind::kFree:
    case Kind::kFreePending:
    case Kind::kPageRelease:
    case Kind::kDriverFailure:
    case Kind::kOom:
    case Kind::kPhase:
    case Kind::kStepBegin:
    case Kind::kStepEnd:
    case Kind::kOptimizerStep:
    case Kind::kPlanChange:
    case Kind::kNote:
    case Kind::kMove:
    case Kind::kLadderOutcome:
      return true;
    case Kind::kPageCreate:
      return record.value == 0;  // a refusal is a driver failure too
    default:                     // of a later version's file
      return std::string_view(kind_name(record.kind)) == "unknown";
  }
}

Deed deed_of(Kind kind) {
  switch (kind) {
    case Kind::kAllocate:
      return Deed::kAllocated;
    case Kind::kFree:
      return Deed::kFreed;
    case Kind::kFreePending:
      return Deed::kFreedLater;
    case Kind::kPageCreate:
      return Deed::kTook;
    case Kind::kPageRelease:
      return Deed::kGaveBack;
    case Kind::kOom:
      return Deed::kFailed;
    default:
      return Deed::kOther;
  }
}

std::string text_of(const trace::Contents& contents, const Record& record) {
  std::string text = event_text(contents, record);
  switch (record.kind) {
    case Kind::kStepBegin:
      return "began " + text;
    case Kind::kStepEnd:
      return "ended " + text;
    case Kind::kLadderOutcome:
      return text;
    default:
      return std::string(kind_name(record.kind)) + ": " + text;
  }
}

class Teller {
 public:
  Teller(const trace::Contents& contents, const Incident* incident, uint64_t lines)
      : contents_(contents), incident_(incident), until_(end_of_the_story()) {
    for (const Record& record : contents.records)
      if (incident == nullptr || record.kind == Kind::kStepBegin || record.device == incident->device)
        clock_.take_in(record);
    first_ = until_;
    // Pages are as many as they are small.
    for (uint64_t events = EventFolder::most_events(lines); first_ > 0 && events > 0; --first_) {
      const Record& record = contents.records[first_ - 1];
      events -=
          is_told(record) && record.kind != Kind::kPageCreate && record.kind != Kind::kPageRelease ? 1 : 0;
    }
    find_places();
  }

  LastEvents tell(uint64_t lines) const {
    EventFolder folder(lines, time_of(std::min(until_, contents_.records.size() - 1)));
    for (size_t i = first_; i < until_; ++i) {
      const Record& record = contents_.records[i];
      if (!is_told(record)) continue;
      const Deed deed = deed_of(record.kind);
      const bool is_asked = record.requested != 0 && deed != Deed::kTook && deed != Deed::kGaveBack;
      folder.take({deed, record.address, is_asked ? record.requested : record.bytes, time_of(i),
                   place_of_event(i), deed == Deed::kOther ? text_of(contents_, record) : ""});
    }
    LastEvents last = folder.finish(count(0, first_));
    last.of_failure = until_ < contents_.records.size();
    last.later = count(until_, contents_.records.size());
    return last;
  }

 private:
  // The records of the incident itself are told elsewhere.
  bool is_of_the_incident(const Record& record) const {
    return incident_ != nullptr && record.value == incident_->number &&
           (record.kind == Kind::kOom || record.kind == Kind::kLadderOutcome);
  }

  size_t end_of_the_story() const {
    const auto& records = contents_.records;
    if (incident_ == nullptr) return records.size();
    const auto failed =
        std::ranges::find_if(records, [&](const Record& record) { return is_of_the_incident(record); });
    return static_cast<size_t>(failed - records.begin());
  }

  uint64_t count(size_t from, size_t to) const {
    const auto& records = contents_.records;
    return static_cast<uint64_t>(std::count_if(
        records.begin() + static_cast<ptrdiff_t>(from), records.begin() + static_cast<ptrdiff_t>(to),
        [&](const Record& record) { return is_told(record) && !is_of_the_incident(record); }));
  }

  // A place follows its allocation, maybe after records of other threads.
  void find_places() {
    std::unordered_map<uint64_t, size_t> allocated;
    for (size_t i = first_; i < until_; ++i) {
      const Record& record = contents_.records[i];
      if (record.kind == Kind::kAllocate) allocated.insert_or_assign(record.address, i);
      if (record.kind == Kind::kSite) {
        const auto block = allocated.find(record.address);
        if (block != allocated.end()) places_[block->second] = record.detail;
      }
      if (record.kind == Kind::kOomSite) askers_[record.value] = record.detail;
    }
  }

  StackName place_of_event(size_t i) const {
    const Record& record = contents_.records[i];
    uint64_t stack = 0;
    if (record.kind == Kind::kAllocate) {
      const auto place = places_.find(i);
      if (place != places_.end()) stack = place->second;
    } else if (record.kind == Kind::kOom) {
      const auto asker = askers_.find(record.value);
      if (asker != askers_.end()) stack = asker->second;
    }
    if (stack == 0) return {};
    const auto [known, is_new] = names_.try_emplace(stack);
    if (is_new) {
      const Place place = place_of(name_of(contents_, stack));
      known->second = {where_of(place), caller_of(place)};
    }
    return known->second;
  }

  std::optional<uint64_t> time_of(size_t i) const {
    if (i >= contents_.records.size()) return std::nullopt;
    const uint64_t order = contents_.records[i].order;
    return clock_.knows(order) ? std::optional(clock_.at(order)) : std::nullopt;
  }

  const trace::Contents& contents_;
  const Incident* incident_;
  const size_t until_;
  size_t first_ = 0;
  TraceClock clock_;
  std::unordered_map<size_t, uint64_t> places_;    // record → name
  std::unordered_map<uint64_t, uint64_t> askers_;  // incident → name
  mutable std::unordered_map<uint64_t, StackName> names_;
};

}  // namespace

LastEvents last_events(const trace::Contents& contents, const Incident* incident, uint64_t lines) {
  if (contents.records.empty()) return {};
  return Teller(contents, incident, lines).tell(lines);
}

}  // namespace spillway::tools
