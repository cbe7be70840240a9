#include "trainer/app/run/rank_end.h"

#include <unistd.h>

#include <cstdio>

#include "trainer/app/run/stop.h"

namespace spillway::trainer {
namespace {

std::string first_line(const std::string& text) {
  return text.substr(0, text.find('\n'));
}

bool is_own_fault(int exit_code) {
  return exit_code != kExitDone && !is_of_signal(exit_code) && exit_code != kExitOtherRank;
}

}  // namespace

RankEnd::~RankEnd() {
  finish();
}

void RankEnd::watch(std::shared_ptr<Watch> watch) {
  if (!watch) return;
  watch_ = std::move(watch);
  watch_->when_held_up([this](const Incident& incident) { held_up(incident); });
}

// On the watch's thread; the training thread is inside a sum, or hangs.
void RankEnd::held_up(const Incident& incident) {
  Results results;
  results.exit_code = kExitOtherRank;
  results.verdict = incident.text();
  results.incident = incident;
  tell_(&results);
  watch_->finish();
  std::fflush(nullptr);
  ::_exit(results.exit_code);
}

void RankEnd::settle(Results* results, FaultOf of) {
  if (!watch_) return;
  while (!watch_->begin_end()) ::pause();  // the watch ends this process
  if (of == FaultOf::kAll || !is_own_fault(results->exit_code)) {
    if (!results->incident) watch_->leave();
    return;
  }
  if (of == FaultOf::kThisOrAnother) watch_->await_others();
  const uint32_t rank = results->ended_by.value_or(watch_->rank());
  const std::string ended = "rank " + std::to_string(rank) + " ended: ";
  results->incident = watch_->say_why(ended + first_line(results->verdict), rank);
  const bool of_this_end =
      results->incident->rank == watch_->rank() && results->incident->cause.starts_with(ended);
  if (of_this_end || results->exit_code != kExitError) return;
  // An error that another rank's end has led to, or that the others have left while this one was stopped.
  results->exit_code = kExitOtherRank;
  results->verdict = results->incident->text() + " (here: " + results->verdict + ")";
}

std::optional<RankPart> RankEnd::part() const {
  if (!watch_) return std::nullopt;
  return RankPart{.rank = watch_->rank(),
                  .size = watch_->size(),
                  .start = watch_->number(),
                  .waited_seconds = watch_->waited_seconds(),
                  .incident = {}};
}

void RankEnd::finish() {
  if (watch_) watch_->finish();
}

}  // namespace spillway::trainer
