#include "trainer/ranks/judge.h"

#include <algorithm>

#include "base/printed.h"

namespace spillway::trainer {
namespace {

using Milliseconds = Judge::Milliseconds;

// A look that comes later than this was no slow machine: the process did not run.
constexpr Milliseconds kLongestLook{1000};
// Between a signal that ends this rank, whose connection is lost, and the cause that the launcher had for it.
constexpr Milliseconds kCauseOfSignal{1000};
// All ranks end after the step in which one has the signal. A rank that makes no progress for so long does
// not come to that end; launchers kill what is there 30 seconds after their signal.
constexpr Milliseconds kProgressAfterSignal{20'000};

std::string seconds_text(Milliseconds time) {
  return printed("%.1f s", double(time.count()) / 1000);
}

std::string rank_text(uint32_t rank) {
  return "rank " + std::to_string(rank);
}

}  // namespace

Judge::Judge(Settings settings, Look look) : settings_(std::move(settings)), look_(std::move(look)) {}

Suspicion Judge::of(uint32_t rank, const std::string& what) const {
  return {rank, rank_text(rank) + " " + what};
}

// A step that takes long from the first on is no hang when it takes as long again. The first one also loads
// libraries and fills caches; that of another plan may be slower than all before it.
Milliseconds Judge::patience(const Activity& own) const {
  if (own.may_be_long || !first_step_ || own.step == *first_step_) return settings_.longest;
  const Milliseconds seen = std::max(2 * longest_at_first_[own.waits], 10 * longest_[own.waits]);
  return std::clamp(seen, settings_.bound, std::max(settings_.bound, settings_.longest));
}

void Judge::follow(Milliseconds passed, const Activity& own) {
  if (own.marks != last_.marks) {
    if (first_step_ && !last_.may_be_long) {
      Milliseconds& longest =
          (last_.step == *first_step_ ? longest_at_first_ : longest_)[last_.waits ? 1 : 0];
      longest = std::max(longest, quiet_);
    }
    if (own.plans != last_.plans) first_step_.reset();
    if (!first_step_ && !own.may_be_long) first_step_ = own.step;
    last_ = own;
    quiet_ = Milliseconds{0};
  } else {
    quiet_ += passed;
  }
  own_waits_ = own.waits;
  overdue_ = quiet_ > patience(own);
}

std::optional<Suspicion> Judge::own_hang(const Observed& now) const {
  if (!overdue_ || own_waits_) return std::nullopt;
  return of(settings_.rank, "hangs: no progress for " + seconds_text(quiet_) + " in step " +
                                std::to_string(now.own.step) + ": " + now.own.doing);
}

std::optional<Suspicion> Judge::hang_of_all(const Observed& now) const {
  if (!asks_all() || now.all.size() != settings_.size) return std::nullopt;
  for (const Beat& beat : now.all)
    if (!beat.waits || !beat.overdue) return std::nullopt;
  return Suspicion{-1, "all ranks wait for each other for " + seconds_text(quiet_) + " in step " +
                           std::to_string(now.own.step) + " (" + now.own.doing +
                           "): look at the network between them"};
}

// The next rank's silence is what the store's answers tell of it. A store that answers late may be late for
// the next rank too, which has then not had its turn.
void Judge::follow_next(Milliseconds passed, const Observed& now) {
  since_answer_ += passed;
  if (!now.next || now.exchanges == answers_) return;
  if (now.next->count != next_count_) {
    next_count_ = now.next->count;
    next_silent_ = Milliseconds{0};
  } else {
    next_silent_ += std::min(since_answer_, settings_.bound / 2);
  }
  answers_ = now.exchanges;
  since_answer_ = Milliseconds{0};
}

std::optional<Suspicion> Judge::next_rank(Milliseconds passed, const Observed& now) {
  if (!now.next || now.next->left) return std::nullopt;
  follow_next(passed, now);
  const std::string last_seen = " (last seen " + place_of(*now.next) + ")";
  const ProcessSeen seen = look_(*now.next);
  const std::string process = "its process " + std::to_string(now.next->process) + " on this machine is ";
  if (seen != ProcessSeen::kGone) {
    gone_at_.reset();
  } else {
    // It may have left, or said why it ended: what an exchange finds that began after its end.
    in_doubt_ = true;
    if (!gone_at_) gone_at_ = now.exchanges;
    if (now.exchanges >= *gone_at_ + 2) return of(watched(), "died: " + process + "gone" + last_seen);
  }
  if (next_silent_ <= settings_.bound) return std::nullopt;
  const std::string why = seen == ProcessSeen::kStopped ? process + "stopped, by a signal or a debugger"
                                                        : "it died, hangs, or its network is lost";
  return of(watched(), "does not answer for " + seconds_text(next_silent_) + ": " + why + last_seen);
}

std::optional<Suspicion> Judge::store(Milliseconds passed, const Observed& now) {
  if (now.exchanges != exchanges_) {
    exchanges_ = now.exchanges;
    store_silent_ = Milliseconds{0};
    return std::nullopt;
  }
  store_silent_ += passed;
  const bool is_elsewhere = !settings_.rank_0_keeps_store || settings_.rank == 0;
  const std::optional<Beat> keeper = is_elsewhere ? std::nullopt : now.keeper;
  if (keeper && keeper->left) return std::nullopt;
  const ProcessSeen seen = keeper ? look_(*keeper) : ProcessSeen::kElsewhere;
  if (keeper && now.store_fails && seen == ProcessSeen::kGone)
    return of(0, "died, which kept the store: its process " + std::to_string(keeper->process) +
                     " on this machine is gone (last seen " + place_of(*keeper) + ")");
  if (store_silent_ <= settings_.bound) return std::nullopt;
  const std::string whose = settings_.rank_0_keeps_store ? ", which rank 0 keeps," : ", the launcher's,";
  std::string cause = "the store at " + settings_.store + whose + " does not answer " +
                      rank_text(settings_.rank) + " for " + seconds_text(store_silent_);
  if (keeper && seen == ProcessSeen::kStopped)
    cause += ": rank 0's process " + std::to_string(keeper->process) + " on this machine is stopped";
  else if (!now.store_error.empty())
    cause += ": " + now.store_error;
  return Suspicion{settings_.rank_0_keeps_store ? 0 : -1, std::move(cause)};
}

std::optional<Suspicion> Judge::lost_or_ended(Milliseconds passed, const Observed& now) {
  if (now.terminated) {
    in_doubt_ = true;
    terminated_for_ += passed;
    const bool is_stuck = std::min(terminated_for_, quiet_) > kProgressAfterSignal;
    if (is_stuck || (!now.lost.empty() && terminated_for_ > kCauseOfSignal))
      return of(settings_.rank, "was ended from outside (SIGTERM), with no other cause known");
  }
  if (now.lost.empty()) return std::nullopt;
  in_doubt_ = true;
  lost_for_ += passed;
  if (lost_for_ <= settings_.bound) return std::nullopt;
  return of(settings_.rank, "lost its connection to other ranks: " + now.lost);
}

std::optional<Suspicion> Judge::look(Milliseconds passed, const Observed& now) {
  in_doubt_ = false;
  const bool was_stopped = passed > settings_.bound;
  const Milliseconds counted = std::min(passed, kLongestLook);
  follow(counted, now.own);
  std::optional<Suspicion> found = store(counted, now);
  if (!found) found = next_rank(counted, now);
  if (!found) found = own_hang(now);
  if (!found) found = hang_of_all(now);
  if (!found) found = lost_or_ended(counted, now);
  if (was_stopped) found = of(settings_.rank, "was stopped for " + seconds_text(passed));
  return found;
}

}  // namespace spillway::trainer
