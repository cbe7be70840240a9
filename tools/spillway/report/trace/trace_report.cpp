#include "tools/spillway/report/trace/trace_report.h"

#include <algorithm>

#include "tools/spillway/page/page.h"
#include "tools/spillway/report/trace/trace_events.h"
#include "tools/spillway/report/trace/trace_history.h"
#include "tools/spillway/report/verdict.h"

namespace spillway::tools {

namespace {

constexpr uint64_t kFew = 10;  // of so many bytes one may be without a line

// How they grow is in the history all the same.
HistoryFindings findings_of(const HeldAtTime& told, const HistoryFindings& in_history) {
  HistoryFindings found;
  found.device = in_history.device;
  found.holdings.in_use = told.in_use_bytes;
  found.span_us = in_history.span_us;
  for (const SiteShare& share : told.holders) {
    Holder holder{share.site.where, share.site.caller, share.bytes, share.blocks, {}, {}};
    for (const Holder& known : in_history.holders) {
      if (known.where != holder.where || known.caller != holder.caller) continue;
      holder.growth = known.growth;
      if (holder.blocks <= known.blocks) holder.oldest_us = known.oldest_us;
    }
    found.holders.push_back(std::move(holder));
  }
  return found;
}

}  // namespace

TraceReport::TraceReport(std::string path, trace::Contents contents)
    : path_(std::move(path)),
      contents_(std::move(contents)),
      analysis_(analyse(contents_)),
      incident_(analysis_.foremost()) {}

void TraceReport::look_at_the_end() {
  for (const auto& [number, device] : history_.devices) {
    LastMemory memory{
        .device = number, .in_use_bytes = device.unknown_bytes, .older_bytes = device.unknown_bytes};
    for (const HistorySegment& segment : device.segments) {
      memory.held_bytes += segment.size;
      for (const HistoryBlock& block : segment.blocks)
        if (block.state == BlockState::kAllocated) memory.in_use_bytes += block.requested;
    }
    memory.held_bytes = std::max(memory.held_bytes, device.held_bytes.value_or(0));
    // Of a program without Spillway's allocator nothing is counted.
    if (memory.held_bytes == 0) continue;
    memory.held_bytes = std::max(memory.held_bytes, memory.in_use_bytes);  // also what is older than the file
    last_.push_back(memory);
    // The peaks are of what was counted now and then, and this may be more.
    const auto counted = analysis_.run.memory.find(static_cast<uint8_t>(number));
    if (counted == analysis_.run.memory.end()) continue;
    DeviceMemory& most = counted->second;
    most.peak_live_bytes = std::max(most.peak_live_bytes, memory.in_use_bytes);
    most.peak_reserved_bytes = std::max(most.peak_reserved_bytes, memory.held_bytes);
  }
}

// Of a process that is running, or was killed.
void TraceReport::find_who_holds_it() {
  at_last_ = look_into(history_, {});
  // A trace without Spillway's allocator has no requests.
  if (at_last_ && at_last_->events == 0) at_last_.reset();
  if (!at_last_ || !at_last_->failure || last_.empty()) return;
  // The findings are of the failure: more has happened since.
  const LastMemory& most = *std::ranges::max_element(last_, {}, &LastMemory::in_use_bytes);
  at_last_->device = most.device;
  at_last_->holdings = {};
  at_last_->holdings.in_use = most.in_use_bytes - most.older_bytes;
  at_last_->holders = holders_before(history_, most.device, history_.devices.at(most.device).events.size());
}

// Who holds most is older than the history of a long run: then what the process itself told last.
void TraceReport::take_last_told(const HistoryFindings& in_history) {
  const auto told = analysis_.last_told.find(static_cast<uint8_t>(in_history.device));
  const auto last = std::ranges::find(last_, in_history.device, &LastMemory::device);
  if (told == analysis_.last_told.end() || last == last_.end()) return;
  if (last->older_bytes <= last->in_use_bytes / kFew) return;
  told_ns_ = told->second.clock_ns;
  told_at_last_ = findings_of(told->second, in_history);
}

bool TraceReport::needs_findings() const {
  return incident_ != nullptr && incident_ == analysis_.foremost() && is_of_history(*incident_);
}

// Of the incident that the history shows too: the last that failed.
Counted TraceReport::counted_holders() const {
  for (const Incident& later : analysis_.incidents)
    if (later.number > incident_->number && is_of_history(later)) return {};
  Counted counted;
  counted.in_use =
      incident_->term(trace::Term::kLive).value_or(0) + incident_->term(trace::Term::kSpilled).value_or(0);
  for (const SiteShare& share : incident_->holders)
    if (share.site.where != kFurtherPlaces)
      counted.holders.push_back({share.site.where, share.site.caller, share.bytes, share.blocks, {}, {}});
  return counted;
}

void TraceReport::look_back(uint64_t lines) {
  last_events_ = last_events(contents_, incident_, lines);
  if (contents_.closed && !needs_findings()) return;
  history_ = take_history(&contents_);
  if (!contents_.closed) {
    look_at_the_end();
    if (incident_ == analysis_.foremost()) find_who_holds_it();
    if (at_last_) take_last_told(*at_last_);
  }
  if (!needs_findings()) return;
  // All that the program may have, its context and other processes included.
  findings_ = look_into(history_, incident_->term(trace::Term::kLimit), counted_holders());
  if (findings_) fitted_ = what_would_have_fitted(history_, *findings_);
}

ReportInput TraceReport::input() const {
  ReportInput input{path_, contents_, analysis_, incident_, last_events_, nullptr, nullptr, last_};
  if (findings_) input.findings = &*findings_;
  if (fitted_) input.fitted = &*fitted_;
  if (at_last_) input.at_last = told_at_last_ ? &*told_at_last_ : &*at_last_;
  input.told_ns = told_ns_;
  return input;
}

std::string TraceReport::page() const {
  const HistoryFindings* shown = findings_ ? &*findings_ : nullptr;
  if (incident_ == nullptr && at_last_) shown = &*at_last_;
  if (shown == nullptr) return trace_page(input(), nullptr);
  const TraceHistory history{history_, *shown};
  return trace_page(input(), &history);
}

std::unique_ptr<TraceReport> read_trace_report(const std::string& path, std::string* error) {
  trace::Contents contents;
  if (!trace::read(path, &contents, error)) return nullptr;
  return std::make_unique<TraceReport>(path, std::move(contents));
}

}  // namespace spillway::tools
