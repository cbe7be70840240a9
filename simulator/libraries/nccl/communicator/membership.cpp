// How the ranks of a communicator meet: by unique id, by splitting, by shrinking, by growing.
#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <cstring>

#include "simulator/libraries/nccl/communicator/communicator.h"
#include "simulator/libraries/nccl/device.h"
#include "simulator/libraries/nccl/error.h"

namespace spillway::nccl {
namespace {

constexpr int64_t kLookAgainMs = 100;

// How long ranks that are there wait for the others: SPILLWAY_SIM_NCCL_TIMEOUT seconds.
std::chrono::seconds patience() {
  constexpr int64_t kDefault = 600, kMost = int64_t{1} << 31;
  const char* text = std::getenv("SPILLWAY_SIM_NCCL_TIMEOUT");
  char* end = nullptr;
  const int64_t seconds = text ? std::strtoll(text, &end, 10) : 0;
  return std::chrono::seconds(seconds > 0 && *end == 0 ? std::min(seconds, kMost) : kDefault);
}

std::string absent_ranks(const SharedFile& file) {
  std::string list;
  for (int rank = 0; rank < file.header().ranks; ++rank)
    if (file.rank(rank).presence.load() == Presence::kAbsent)
      list += (list.empty() ? "" : ", ") + std::to_string(rank);
  return list;
}

std::string rank_text(const SharedFile& file, int rank) {
  return "rank " + std::to_string(rank) + " (process " + std::to_string(file.rank(rank).process.load().id) +
         ")";
}

// It was there, or on its way.
bool gone(const RankPart& part) {
  return part.presence.load() == Presence::kLeft ||
         (part.process.claimed() && !is_alive(part.process.load()));
}

// Waits where a rank is so many splits behind that its entry would be written over.
ncclResult_t wait_for_split_room(const SharedFile& file, uint64_t number) {
  for (int rank = 0; rank < file.header().ranks; ++rank) {
    const RankPart& part = file.rank(rank);
    for (uint32_t seen = file.changes(); number >= part.splits_read.load() + kSplitsKept;
         seen = file.changes()) {
      if (gone(part))
        return fail(ncclRemoteError, rank_text(file, rank) + " ended before it called ncclCommSplit");
      file.wait(seen, kLookAgainMs);
    }
  }
  return ncclSuccess;
}

}  // namespace

std::shared_ptr<Communicator> Communicator::join(const Meeting& meeting, int ranks, int rank, int device,
                                                 const Settings& settings, ncclResult_t* result) {
  std::shared_ptr<Communicator> made(new Communicator(device, settings));
  const Locked lock(made->mutex_);
  made->creator_ = meeting.creator;
  *result = made->enter_locked(meeting.place, rank, ranks);
  return *result == ncclSuccess ? made : nullptr;
}

ncclResult_t Communicator::enter_locked(const Place& place, int rank, int ranks) {
  if (ranks < 1 || ranks > kMostRanks)
    return fail(ncclInvalidArgument, "a communicator of " + std::to_string(ranks) + " ranks: 1 to " +
                                         std::to_string(kMostRanks) + " can be simulated");
  if (rank < 0 || rank >= ranks)
    return fail(ncclInvalidArgument, "rank " + std::to_string(rank) + " of " + std::to_string(ranks));
  std::string why;
  auto file = SharedFile::open(place, ranks, computes(), &why);
  if (!file) return fail(ncclInvalidUsage, why);
  file_ = file;
  ranks_ = ranks;
  links_ = limited(links_of(card_name(device_)), settings_.least_channels, settings_.most_channels);
  if (file->rank(rank).presence.load() != Presence::kAbsent)
    return fail(ncclInvalidUsage,
                "rank " + std::to_string(rank) + " is there already: " + rank_text(*file, rank));
  rank_ = rank;
  if (const ncclResult_t result = claim_locked(file->rank(rank)); result != ncclSuccess) return result;
  traffic_.emplace(*file, rank);
  entered_ = std::chrono::steady_clock::now();
  if (file->header().joined.fetch_add(1) + 1 == ranks) file->unlink();
  file->changed();
  return ncclSuccess;
}

ncclResult_t Communicator::claim_locked(RankPart& part) {
  if (!part.process.claim(this_process())) {
    const int rank = std::exchange(rank_, -1);
    return fail(ncclInvalidUsage, "two processes say that they are rank " + std::to_string(rank));
  }
  part.device = device_;
  std::strncpy(part.card, card_identity(device_).c_str(), sizeof part.card - 1);
  part.presence.store(Presence::kThere);
  return ncclSuccess;
}

std::shared_ptr<Communicator> Communicator::split(const std::shared_ptr<Communicator>& parent, int color,
                                                  int key, const Settings& settings, ncclResult_t* result) {
  if (color < 0 && color != NCCL_SPLIT_NOCOLOR)
    return *result = fail(ncclInvalidArgument, "color " + std::to_string(color) + " is negative"), nullptr;
  uint64_t number = 0;
  {
    const Locked lock(parent->mutex_);
    number = parent->splits_++;
  }
  *result = wait_for_split_room(*parent->file_, number);
  if (*result != ncclSuccess) return nullptr;
  RankPart& mine = parent->file_->rank(parent->rank_);
  mine.split[number % kSplitsKept] = {color, key};
  if (color == NCCL_SPLIT_NOCOLOR) mine.splits_read.store(number + 1);
  mine.splits.store(number + 1);
  parent->file_->changed();
  if (color == NCCL_SPLIT_NOCOLOR) return nullptr;
  std::shared_ptr<Communicator> made(new Communicator(parent->device_, settings));
  const Locked lock(made->mutex_);
  made->origin_ = {parent->file_, parent->rank_, {}};
  made->split_ = Split{number, color};
  return made;
}

// When all ranks of the parent have said their color, those of this one's meet.
ncclResult_t Communicator::finish_split_locked(Split split) {
  const SharedFile& parent = *origin_.file;
  std::vector<std::pair<int, int>> members;  // key and rank
  for (int rank = 0; rank < parent.header().ranks; ++rank) {
    const RankPart& part = parent.rank(rank);
    if (part.splits.load() <= split.number) {
      if (!gone(part) || part.splits.load() > split.number) return ncclInProgress;
      return fail(ncclRemoteError, rank_text(parent, rank) + " ended before it called ncclCommSplit");
    }
    const SplitRecord record = part.split[split.number % kSplitsKept];
    if (record.color == split.color) members.emplace_back(record.key, rank);
  }
  std::stable_sort(members.begin(), members.end());
  split_.reset();
  RankPart& mine = parent.rank(origin_.rank);
  mine.splits_read.store(std::max(mine.splits_read.load(), split.number + 1));
  parent.changed();
  for (const auto& [key, rank] : members) origin_.members.push_back(rank);
  const auto& ranks = origin_.members;
  const auto place = std::find(ranks.begin(), ranks.end(), origin_.rank) - ranks.begin();
  creator_ = this_process();
  const std::string what = "split " + std::to_string(split.number) + " " + std::to_string(split.color);
  return enter_locked(derived_place(parent.place(), what), static_cast<int>(place),
                      static_cast<int>(ranks.size()));
}

std::shared_ptr<Communicator> Communicator::shrink(const std::shared_ptr<Communicator>& parent,
                                                   const std::set<int>& excluded, const Settings& settings,
                                                   ncclResult_t* result) {
  std::string what = "shrink";
  uint64_t number = 0;
  {
    const Locked lock(parent->mutex_);
    number = parent->shrinks_++;
  }
  for (const int rank : excluded) what += " " + std::to_string(rank);
  const auto before = std::distance(excluded.begin(), excluded.lower_bound(parent->rank_));
  const Place place = derived_place(parent->file_->place(), what + " number " + std::to_string(number));
  auto made = join({place, this_process()}, parent->ranks_ - static_cast<int>(excluded.size()),
                   parent->rank_ - static_cast<int>(before), parent->device_, settings, result);
  if (!made) return nullptr;
  const Locked lock(made->mutex_);
  made->origin_ = {parent->file_, parent->rank_, {}};
  for (int rank = 0; rank < parent->ranks_; ++rank)
    if (!excluded.contains(rank)) made->origin_.members.push_back(rank);
  return made;
}

namespace {

std::string growth(uint64_t number) {
  return "grow number " + std::to_string(number);
}

}  // namespace

ncclResult_t Communicator::make_id_to_grow(ncclUniqueId* out) {
  if (const ncclResult_t result = async_error(); result != ncclSuccess)
    return result == ncclInProgress ? fail(ncclInvalidArgument, "the communicator is not ready yet") : result;
  const Locked lock(mutex_);
  if (grows_by_id_)
    return fail(ncclInvalidUsage, "ncclCommGetUniqueId: no ncclCommGrow has used the id before this one");
  std::string why;
  if (!make_derived_id(file_->place(), growth(grows_), out, &why)) return fail(ncclSystemError, why);
  grows_by_id_ = true;
  return ncclSuccess;
}

std::shared_ptr<Communicator> Communicator::grow(const std::shared_ptr<Communicator>& parent, int ranks,
                                                 const Settings& settings, ncclResult_t* result) {
  if (ranks <= parent->ranks_)
    return *result = fail(ncclInvalidArgument, "ncclCommGrow: to " + std::to_string(ranks) + " ranks, of " +
                                                   std::to_string(parent->ranks_) + " that there are"),
           nullptr;
  uint64_t number = 0;
  {
    const Locked lock(parent->mutex_);
    number = parent->grows_++;
    parent->grows_by_id_ = false;
  }
  auto made = join({derived_place(parent->file_->place(), growth(number)), this_process()}, ranks,
                   parent->rank_, parent->device_, settings, result);
  if (!made) return nullptr;
  const Locked lock(made->mutex_);
  made->origin_ = {parent->file_, parent->rank_, {}};
  for (int rank = 0; rank < parent->ranks_; ++rank) made->origin_.members.push_back(rank);
  return made;
}

// As NCCL: a card can be in a communicator once.
ncclResult_t Communicator::check_cards() const {
  for (int a = 0; a < ranks_; ++a)
    for (int b = a + 1; b < ranks_; ++b)
      if (std::strcmp(file_->rank(a).card, file_->rank(b).card) == 0)
        return fail(ncclInvalidUsage, "Duplicate GPU detected : rank " + std::to_string(a) + " and rank " +
                                          std::to_string(b) + " both on CUDA device " + file_->rank(a).card);
  return ncclSuccess;
}

ncclResult_t Communicator::become_ready_locked() {
  if (const ncclResult_t result = check_cards(); result != ncclSuccess) return result;
  if (!settings_.shares_memory)
    if (const ncclResult_t result = charge_locked(communicator_bytes(links_, ranks_), false);
        result != ncclSuccess)
      return result;
  ready_ = true;
  return ncclSuccess;
}

// Whether all ranks are there, or will never be.
ncclResult_t Communicator::meet_locked() {
  if (file_->header().joined.load() == ranks_) return become_ready_locked();
  if (!time_to_look()) return ncclInProgress;
  for (int rank = 0; rank < ranks_; ++rank)
    if (gone(file_->rank(rank)) && file_->header().joined.load() < ranks_)  // it may have come and gone
      return fail(ncclRemoteError, rank_text(*file_, rank) + " ended before all ranks had come");
  for (const int rank : origin_.members)
    if (gone(origin_.file->rank(rank)) && file_->header().joined.load() < ranks_)
      return fail(ncclRemoteError, rank_text(*origin_.file, rank) + " of the communicator before ended");
  if (!is_alive(creator_))
    return fail(ncclRemoteError, "the process that made the unique id (" + std::to_string(creator_.id) +
                                     ") ended before all ranks had come");
  if (std::chrono::steady_clock::now() - entered_ > patience())
    return fail(ncclRemoteError, "these of " + std::to_string(ranks_) + " ranks did not come within " +
                                     std::to_string(patience().count()) + " s: " + absent_ranks(*file_) +
                                     " (SPILLWAY_SIM_NCCL_TIMEOUT sets it)");
  return ncclInProgress;
}

ncclResult_t Communicator::advance_locked() {
  if (ready_ || left_) return ncclSuccess;
  if (error_ != ncclSuccess) return error_;
  ncclResult_t result = split_ ? finish_split_locked(*split_) : ncclSuccess;
  if (result == ncclSuccess) result = meet_locked();
  if (result == ncclSuccess || result == ncclInProgress) return result;
  why_ = last_error();
  return error_ = result;
}

ncclResult_t Communicator::advance() {
  const Locked lock(mutex_);
  return advance_locked();
}

std::shared_ptr<SharedFile> Communicator::waits_on() {
  const Locked lock(mutex_);
  return split_ ? origin_.file : file_;
}

ncclResult_t Communicator::wait_ready() {
  for (;;) {
    const auto file = waits_on();
    const uint32_t seen = file->changes();
    if (const ncclResult_t result = advance(); result != ncclInProgress) return result;
    file->wait(seen, kLookAgainMs);  // at most a while, if it now waits on another one
  }
}

}  // namespace spillway::nccl
