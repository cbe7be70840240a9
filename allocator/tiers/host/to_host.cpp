#include "allocator/tiers/host/to_host.h"

#include <algorithm>
#include <utility>

#include "allocator/accounting/journal.h"

namespace spillway {
namespace {

// Copied for longer than the driver's calls for it take, and no longer: what is left to do after the last
// copy is one step's.
constexpr uint64_t kStepBytes = 4 << 20;
// The driver takes longer to give access than to unmap.
constexpr double kShareBesideTakingOut = 0.4;

}  // namespace

bool ToHost::add(Move& move) {
  if (stopped_) return false;
  goings_.push_back(std::make_unique<Progress>(Progress{.move = &move}));
  // A handle is unmapped whole.
  uint64_t at = move.range.begin;
  for (const driver::Page& page : move.from) {
    if (stopped_) break;
    extend({goings_.back().get(), {at, at + page.bytes}});
    at += page.bytes;
  }
  return !stopped_;
}

void ToHost::extend(const Part& part) {
  if (!next_.empty()) {
    const Part& last = next_.parts.back();
    const bool fits = next_.range().bytes() + part.range.bytes() <= kStepBytes;
    if (!fits || last.range.end != part.range.begin ||
        !in_one_segment(*last.progress->move, *part.progress->move))
      advance();
  }
  if (stopped_) return;
  add_copies(part);
  if (!next_.empty() && next_.parts.back().progress == part.progress)
    next_.parts.back().range.end = part.range.end;
  else
    next_.parts.push_back(part);
}

// To the homes of what the move goes to, each of which is by itself.
void ToHost::add_copies(const Part& part) {
  uint64_t at = part.progress->move->range.begin;
  for (const driver::Page& page : part.progress->move->to) {
    const uint64_t from = std::max(at, part.range.begin), to = std::min(at + page.bytes, part.range.end);
    if (from < to) next_.copies.add(memory_.home(page.handle) + (from - at), from, to - from);
    at += page.bytes;
  }
}

void ToHost::advance() {
  next_.copies.begin_share(device_, kShareBesideTakingOut);
  const bool out = stopped_ || take_out(last_);
  next_.copies.begin_rest(device_);
  if (!stopped_ && (!out || !put_in(last_))) stopped_ = true;
  if (stopped_) give_up(next_, CUDA_ERROR_NOT_READY);
  last_ = std::exchange(next_, {});
}

void ToHost::finish() {
  advance();
  advance();
}

bool ToHost::take_out(Step& step) {
  if (step.empty()) return true;
  double us = 0;
  CUresult result = step.copies.wait(device_, &us);
  if (result == CUDA_SUCCESS && us > 0) copied_bytes_ += step.range().bytes(), copies_us_ += us;
  if (result == CUDA_SUCCESS) result = device_.unmap(step.range().begin, step.range().bytes());
  if (result != CUDA_SUCCESS) {
    give_up(step, result);
    return false;
  }
  for (const Part& part : step.parts) part.progress->out_bytes += part.range.bytes();
  return true;
}

// The host memory of the move for which the place is free by now.
AddressRange ToHost::next_in(Progress& going, std::vector<driver::Page>* pages) {
  const uint64_t begin = going.move->range.begin;
  AddressRange range{begin + going.in_bytes, begin + going.in_bytes};
  uint64_t at = begin;
  for (const driver::Page& page : going.move->to) {
    if (at == range.end && at + page.bytes <= begin + going.out_bytes) {
      pages->push_back(page);
      range.end += page.bytes;
    }
    at += page.bytes;
  }
  return range;
}

// Neighbours, at once; of the last one there may be more to come.
bool ToHost::put_in(Step& step) {
  std::vector<driver::Page> pages;
  std::vector<std::pair<Progress*, uint64_t>> ends;
  AddressRange range{};
  for (const Part& part : step.parts) {
    const AddressRange next = next_in(*part.progress, &pages);
    if (next.bytes() == 0) continue;
    if (ends.empty()) range.begin = next.begin;
    ends.emplace_back(part.progress, next.end - part.progress->move->range.begin);
  }
  if (ends.empty()) return true;
  if (const CUresult result = device_.map(range.begin, pages); result != CUDA_SUCCESS) {
    give_up(step, result);
    return false;
  }
  for (const auto& [going, in_bytes] : ends) {
    going->in_bytes = in_bytes;
    going->move->done = in_bytes == going->move->range.bytes();
    if (going->move->done) record_(*going->move, CUDA_SUCCESS);
  }
  return true;
}

// What was taken out gets its old pages again. Copies are waited for: their memory serves others next.
void ToHost::give_up(Step& step, CUresult result) {
  double us = 0;
  step.copies.wait(device_, &us);
  for (const Part& part : step.parts) {
    Progress& going = *part.progress;
    if (going.move->done || std::exchange(going.given_up, true)) continue;
    if (const CUresult back = put_old_pages_back(device_, going); back != CUDA_SUCCESS)
      journal::driver_failure(heap_, going.out_bytes, back, "the way back of a failed spill");
    record_(*going.move, result);
  }
}

}  // namespace spillway
