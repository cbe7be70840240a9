// The processes that train one model together: where they meet, and what they add up.
//
// They meet in a c10d store; sums go over NCCL on GPUs and over Gloo on CPUs. All ranks call the same
// functions that communicate in the same order. A process that is alone communicates with nobody, and every
// sum is its own.
//
// Thread-safety: one thread. Ownership: owns the store's connection and the process group. Errors: RanksError
// where the ranks do not meet or do not go together, with what to do; RanksEnded (incident.h) where one of
// them fails later; without a watch c10d's exceptions pass through. All of them are final: no rank goes on.
#pragma once
#include <chrono>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "trainer/libtorch.h"
#include "trainer/ranks/agreement/store_round.h"
#include "trainer/ranks/launch.h"
#include "trainer/ranks/watch.h"

namespace spillway::trainer {

struct RanksTimes {
  std::chrono::milliseconds timeout{600'000};  // of the start and of a sum
  std::chrono::milliseconds beat{2'000};       // between two signs of life
  std::chrono::milliseconds bound{0};          // without one, until all end; 0: nobody watches
};

class Ranks {
 public:
  Ranks();  // alone
  // Waits for the others. Sums are of tensors of `device`. `watched` has the watch when all have come, before
  // anything else may fail.
  Ranks(const Launch& launch, at::Device device, const RanksTimes& times,
        const std::function<void(std::shared_ptr<Watch>)>& watched = {});
  virtual ~Ranks();
  Ranks(const Ranks&) = delete;
  // Some of these ranks as ranks of their own, numbered in the order of `members`, of which this one is one;
  // with the same watch, and with sums and messages in an order of their own. All members call it at once.
  // `name`: other members at the same time, or the same once more, have another one. `device`: of what they
  // exchange; else as all.
  std::shared_ptr<Ranks> among(const std::string& name, const std::vector<uint32_t>& members,
                               std::optional<at::Device> device = {}) const;
  // Each kind of sum once: makes the communicators, while there is memory for them. All ranks call it; of
  // those that were started it is done.
  void warm_up();

  uint32_t rank() const { return rank_; }
  uint32_t size() const { return size_; }
  bool is_alone() const { return size_ == 1; }
  bool leads() const { return rank_ == 0; }  // writes what is written once

  struct Share {
    uint32_t first = 0, count = 0;
  };
  // Of so many rows, those that this rank computes: in order, and at most one more than another rank.
  Share share_of(uint32_t rows) const;
  uint32_t largest_share_of(uint32_t rows) const { return (rows + size_ - 1) / size_; }

  // RanksError, on all ranks, unless `mine`, lines of text, is the same on all.
  void check_same(const std::string& what, const std::string& mine);

  // On a GPU the work is queued, in the current stream's order, but for sums of numbers, which wait; nothing
  // is allocated after the first call.
  double sum(double mine);
  // At most kMostNumbers; each becomes the sum of all ranks' numbers.
  static constexpr size_t kMostNumbers = 3;
  void add_up(std::span<double> numbers);
  // `flat`, a contiguous row, has a part for each rank, all as large. This rank's part becomes the sum of
  // what all ranks have in it; the other parts are then worth nothing.
  virtual void reduce_scatter(const at::Tensor& flat);
  // Each rank's own part comes to all.
  virtual void all_gather(const at::Tensor& flat);
  // A message to another rank, contiguous, which takes it by `receive` into a tensor of the same size. What
  // one rank sends another one arrives in that order. It is queued, and its memory stays meanwhile.
  void send(const at::Tensor& message, uint32_t to);
  // What the current stream is given from now on is behind the message; on a CPU it is there.
  void receive(const at::Tensor& message, uint32_t from);
  // The same of all that was sent: it has gone.
  void wait_for_sent();
  at::Device device() const;  // of what is exchanged
  // By these, as a ring of the ranks sends sums.
  uint64_t bytes_sent() const { return bytes_sent_; }

  // What this rank is at, for the watch; `doing` is a literal. A checkpoint may be long.
  void works(const char* doing, uint64_t step, bool may_be_long = false);
  void changes_plan(uint64_t step);
  // `wait` returns when what was queued is done, the sums among it.
  void wait_for_sums(const std::function<void()>& wait);

  // What the first rank decides from the words of all; the same on all.
  std::string decide(const std::string& mine, const Decide& decide);

  // All ranks know that they end now.
  void end_together();
  // The last call: the rank that keeps the store waits until nobody needs it, for a bounded time.
  void leave();

 private:
  struct Communication;
  // Of those of `whole`.
  Ranks(const Ranks& whole, const std::string& name, const std::vector<uint32_t>& members, at::Device device);

  at::Tensor own_part(const at::Tensor& flat);
  void sum_by_messages(const at::Tensor& flat, at::Tensor mine);
  // What all ranks do at once: the watch knows that this one waits, and says what a failure is. With kQueued
  // a GPU waits when the call is over.
  enum class Ends : uint8_t { kNow, kQueued };
  template <typename Work>
  void together(const char* what, const Work& work, Ends ends = Ends::kNow);

  void wait_until_read(const std::string& what);

  const uint32_t rank_ = 0, size_ = 1;
  bool keeps_store_ = false;
  uint64_t bytes_sent_ = 0;
  std::shared_ptr<Watch> watch_;
  std::unique_ptr<Communication> communication_;
};

}  // namespace spillway::trainer
