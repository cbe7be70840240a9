#include "allocator/tiers/host/from_host.h"

#include <algorithm>
#include <utility>

#include "allocator/accounting/journal.h"

namespace spillway {
namespace {

// The first is short, so that copies begin soon; the others are copied for longer than the driver's calls for
// the next take.
constexpr uint64_t kFirstBytes = 2 << 20, kMostBytes = 4 << 20;
// What runs beside each unmapping; the driver takes longer to give access.
constexpr double kShareBesideUnmapping = 0.3;
// Whose copies are queued, and not waited for yet.
constexpr size_t kMostUnderWay = 3;

}  // namespace

bool FromHost::add(Move& move) {
  if (comings_.empty()) step_bytes_ = std::max(kFirstBytes, heap_.page_bytes);
  comings_.push_back(std::make_unique<Progress>(Progress{.move = &move}));
  for (uint64_t at = move.range.begin; at < move.range.end && !stopped();) {
    const bool behind = !next_.empty() && next_.parts.back().range.end == at &&
                        in_one_segment(*next_.parts.back().progress->move, move);
    const uint64_t taken = next_.empty() ? 0 : next_.range().bytes();
    const uint64_t room = (step_bytes_ - std::min(step_bytes_, taken)) / heap_.page_bytes * heap_.page_bytes;
    if (!next_.empty() && (!behind || room == 0)) {
      advance();
      continue;
    }
    const uint64_t end = std::min(move.range.end, at + room);
    next_.parts.push_back({comings_.back().get(), {at, end}});
    at = end;
  }
  return !stopped();
}

// A call that changes mappings may wait for the copies that are queued: a share of the last step's is left
// for each of the three.
void FromHost::advance() {
  std::vector<driver::Page> pages;
  if (stopped()) next_ = {};
  last_.copies.begin_share(device_, kShareBesideUnmapping);
  get_pages(next_, &pages);
  last_.copies.begin_share(device_, kShareBesideUnmapping);
  if (!next_.empty()) error_ = take_out(next_);
  last_.copies.begin_rest(device_);
  if (!next_.empty() && error_ == CUDA_SUCCESS) error_ = put_in(next_, pages);
  if (!last_.empty()) under_way_.push_back(std::move(last_));
  last_ = std::exchange(next_, {});
  if (error_ != CUDA_SUCCESS) last_ = {};  // nothing of it was queued
  step_bytes_ = std::min(2 * step_bytes_, std::max(kMostBytes, heap_.page_bytes));
  if (under_way_.size() < kMostUnderWay) return;
  complete(under_way_.front());
  under_way_.pop_front();
}

void FromHost::finish() {
  advance();
  advance();
  for (Step& step : under_way_) complete(step);
  for (const auto& coming : comings_)
    if (!coming->move->done) restore(*coming);
}

// They are given to the moves. Where there are none any more, what is before that part has all that it needs.
void FromHost::get_pages(Step& step, std::vector<driver::Page>* pages) {
  for (size_t i = 0; i < step.parts.size(); ++i) {
    const Part& part = step.parts[i];
    const auto before = static_cast<std::ptrdiff_t>(pages->size());
    no_pages_ = !pages_(part.range.bytes(), pages);
    if (no_pages_) return step.parts.resize(i);
    part.progress->move->to.insert(part.progress->move->to.end(), pages->begin() + before, pages->end());
  }
}

// The host memory that lies where the step's pages go, each chunk or page of it whole.
CUresult FromHost::take_out(Step& step) {
  std::vector<uint64_t> out_bytes;
  for (const Part& part : step.parts) {
    uint64_t out = 0;
    for (const driver::Page& page : part.progress->move->from)
      if (part.progress->move->range.begin + out < part.range.end) out += page.bytes;
    out_bytes.push_back(out);
  }
  const Progress& first = *step.parts.front().progress;
  const Progress& last = *step.parts.back().progress;
  const AddressRange range{first.move->range.begin + first.out_bytes,
                           last.move->range.begin + out_bytes.back()};
  if (range.begin == range.end) return CUDA_SUCCESS;
  const CUresult result = device_.unmap(range.begin, range.bytes());
  for (size_t i = 0; i < step.parts.size() && result == CUDA_SUCCESS; ++i)
    step.parts[i].progress->out_bytes = out_bytes[i];
  return result;
}

CUresult FromHost::put_in(Step& step, const std::vector<driver::Page>& pages) {
  if (const CUresult result = device_.map(step.range().begin, pages); result != CUDA_SUCCESS) return result;
  for (const Part& part : step.parts) {
    part.progress->in_bytes += part.range.bytes();
    add_copies(step, part);
  }
  return CUDA_SUCCESS;
}

void FromHost::add_copies(Step& step, const Part& part) {
  uint64_t at = part.progress->move->range.begin;
  for (const driver::Page& page : part.progress->move->from) {
    const uint64_t from = std::max(at, part.range.begin), to = std::min(at + page.bytes, part.range.end);
    if (from < to) step.copies.add(from, memory_.home(page.handle) + (from - at), to - from);
    at += page.bytes;
  }
}

void FromHost::complete(Step& step) {
  double us = 0;
  const CUresult result = step.copies.wait(device_, &us);
  if (error_ == CUDA_SUCCESS) error_ = result;
  if (result != CUDA_SUCCESS) return;
  if (us > 0) copied_bytes_ += step.range().bytes(), copies_us_ += us;
  for (const Part& part : step.parts) {
    Progress& coming = *part.progress;
    coming.copied_bytes += part.range.bytes();
    coming.move->done = coming.copied_bytes == coming.move->range.bytes();
    if (coming.move->done) record_(*coming.move, CUDA_SUCCESS);
  }
}

// All copies are over.
void FromHost::restore(const Progress& coming) {
  if (const CUresult back = put_old_pages_back(device_, coming); back != CUDA_SUCCESS)
    journal::driver_failure(heap_, coming.out_bytes, back, "the way back of a failed spill");
  if (error_ != CUDA_SUCCESS) record_(*coming.move, error_);
}

}  // namespace spillway
