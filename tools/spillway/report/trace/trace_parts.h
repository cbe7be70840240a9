// What of a trace lies across the records of its blocks: which requests failed, and what time it was.
//
// Thread-safety: none; used while one history is built. Errors: what a record does not say is 0. Units:
// bytes, microseconds.
#pragma once
#include <algorithm>
#include <iterator>
#include <map>

#include "tools/spillway/report/analysis.h"
#include "tools/spillway/report/verdict.h"

namespace spillway::tools {

// What the incidents say about the records of the program's failed requests.
class TraceFailures {
 public:
  explicit TraceFailures(const trace::Contents& contents) {
    for (Incident& incident : analyse(contents).incidents)
      incidents_.emplace(incident.number, std::move(incident));
  }
  // Of a block of Spillway's, and not rescued.
  bool is_failure(const trace::Record& record) const { return is_of_history(incidents_.at(record.value)); }
  uint64_t pool(const trace::Record& record) const {
    return incidents_.at(record.value).pool.value_or(0) & UINT32_MAX;
  }
  // Below the limit, and not taken.
  uint64_t free(const trace::Record& record) const {
    return incidents_.at(record.value).term(trace::Term::kFree).value_or(0);
  }
  // What the allocator may hold: the limit less what others have taken of it, or are left.
  uint64_t room(const trace::Record& record) const {
    const Incident& incident = incidents_.at(record.value);
    uint64_t room = incident.term(trace::Term::kLimit).value_or(0);
    for (const trace::Term outside : {trace::Term::kContext, trace::Term::kOthers, trace::Term::kReserve})
      room -= std::min(room, incident.term(outside).value_or(0));
    return room;
  }

 private:
  std::map<uint64_t, Incident> incidents_;
};

// The time of an order, by the records of one device that have a clock.
class TraceClock {
 public:
  void take_in(const trace::Record& record) {
    if (record.kind == trace::Kind::kOom && record.detail != 0) {
      begun_[record.value] = record.detail / 1000;
      note(record.order, record.detail / 1000);
    }
    if ((record.kind == trace::Kind::kMemory || record.kind == trace::Kind::kStepBegin) && record.detail != 0)
      note(record.order, record.detail / 1000);
    const auto begun = begun_.find(record.value);
    if (record.kind == trace::Kind::kLadderOutcome && begun != begun_.end())
      note(record.order, begun->second + std::min(record.address, UINT64_MAX - begun->second));
  }
  // Before the first record with a clock no time is known.
  bool knows(uint64_t order) const { return !times_.empty() && times_.begin()->first <= order; }
  uint64_t at(uint64_t order) const {
    if (times_.empty()) return 0;
    const auto after = times_.lower_bound(order);
    if (after == times_.end()) return times_.rbegin()->second;
    if (after == times_.begin() || after->first == order) return after->second;
    const auto before = std::prev(after);
    const double share =
        static_cast<double>(order - before->first) / static_cast<double>(after->first - before->first);
    return before->second +
           static_cast<uint64_t>(share * static_cast<double>(after->second - before->second));
  }

 private:
  void note(uint64_t order, uint64_t time) {
    if (!times_.empty() && times_.rbegin()->first < order) time = std::max(time, times_.rbegin()->second);
    times_.try_emplace(order, time);
  }
  std::map<uint64_t, uint64_t> begun_, times_;
};

}  // namespace spillway::tools
