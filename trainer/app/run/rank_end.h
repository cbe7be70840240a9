// How the run of one of several ranks ends: whose fault it was stands in its results, its report and on the
// other ranks, and it ends also where its training thread cannot.
//
// Thread-safety: `watch` and `settle` from the training thread; what is held up is told by the watch's.
// Ownership: borrows all but the watch; it outlives the run. Errors: none.
#pragma once
#include <functional>
#include <memory>

#include "trainer/app/run/outcome.h"
#include "trainer/ranks/watch.h"
#include "trainer/report/report.h"

namespace spillway::trainer {

class RankEnd {
 public:
  // Writes the report of a run that began, and says what there is to say.
  using Tell = std::function<void(Results*)>;

  explicit RankEnd(Tell tell) : tell_(std::move(tell)) {}
  ~RankEnd();
  RankEnd(const RankEnd&) = delete;
  RankEnd& operator=(const RankEnd&) = delete;

  void watch(std::shared_ptr<Watch> watch);  // null: there is nothing to watch
  // The run has ended so. Does not return where the watch ends this process.
  void settle(Results* results, FaultOf of);
  // Of the report; nothing where nobody watches.
  std::optional<RankPart> part() const;
  // Behind the report: the others have the incident now.
  void finish();

 private:
  void held_up(const Incident& incident);

  const Tell tell_;
  std::shared_ptr<Watch> watch_;
};

}  // namespace spillway::trainer
