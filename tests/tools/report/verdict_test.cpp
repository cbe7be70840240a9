// Each rule of the verdict, by the equation that decides it.
#include "tools/spillway/report/verdict.h"

#include <gmock/gmock.h>

#include <algorithm>
#include <iterator>

namespace spillway::tools {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;
using trace::Term;

constexpr uint64_t kMiB = 1 << 20;

// In MiB. What the terms leave of the limit is free.
Incident failure(uint64_t limit, uint64_t request, const std::map<Term, uint64_t>& terms) {
  Incident incident;
  incident.requested_bytes = incident.rounded_bytes = request * kMiB;
  uint64_t rest = limit;
  for (const Term term : kSummands) incident.terms[term] = 0;
  for (const auto& [term, mib] : terms) {
    incident.terms[term] = mib * kMiB;
    if (std::ranges::find(kSummands, term) != std::end(kSummands)) rest -= mib;
  }
  incident.terms[Term::kLimit] = limit * kMiB;
  incident.terms[Term::kFree] = rest * kMiB;
  return incident;
}

void expect(Cause cause, const std::string& part, const Incident& incident) {
  const Verdict verdict = judge(incident);
  EXPECT_EQ(cause_name(verdict.cause), std::string(cause_name(cause))) << verdict.text;
  EXPECT_THAT(verdict.text, HasSubstr(part));
  EXPECT_EQ(incident.residual_bytes(), 0);
}

// A call of another library's under `spillway run`.
Incident call_of(const std::string& library, std::vector<LadderTry> tries, trace::Outcome outcome) {
  Incident incident;
  incident.library = library;
  incident.requested_bytes = incident.rounded_bytes = 288 * kMiB;
  incident.terms = {{Term::kFree, 200 * kMiB}, {Term::kDevice, 4096 * kMiB}};
  incident.tries = std::move(tries);
  incident.outcome = outcome;
  return incident;
}

TEST(Verdict, OfAnotherLibrarySaysWhoAskedAndWhatServedIt) {
  LadderTry nothing;
  nothing.strategy = "release_cache";
  LadderTry cache;
  cache.strategy = "framework_cache";
  cache.measured_bytes = 3072 * kMiB;
  const Verdict served = judge(call_of("libnccl.so.2", {nothing, cache}, trace::Outcome::kGranted));
  EXPECT_EQ(served.cause, Cause::kAnotherLibrary);
  EXPECT_EQ(served.text,
            "libnccl.so.2 asked the driver for 288.00 MiB while 200.00 MiB of 4.00 GiB were free; served: "
            "framework_cache gave 3.00 GiB");
  const Verdict refused = judge(call_of("libnccl.so.2", {nothing}, trace::Outcome::kGiveUp));
  EXPECT_THAT(refused.text, HasSubstr("not served: nothing was given back"));
}

TEST(Verdict, PyTorchIsNoOtherLibrary) {
  const Verdict own = judge(call_of("libc10_cuda.so", {}, trace::Outcome::kGiveUp));
  EXPECT_STREQ(cause_name(own.cause), "PyTorch");
  EXPECT_THAT(own.text, HasSubstr("its allocator asked the driver for 288.00 MiB"));
  EXPECT_THAT(judge(call_of("libtorch_cuda.so", {}, trace::Outcome::kGiveUp)).text,
              HasSubstr("libtorch_cuda.so asked the driver"));
  EXPECT_EQ(caller_text("libc10_cuda.so"), "PyTorch's allocator (libc10_cuda.so)");
  EXPECT_EQ(caller_text("libtorch_cuda.so"), "PyTorch (libtorch_cuda.so)");
  EXPECT_EQ(caller_text("libnccl.so.2"), "libnccl.so.2");
}

TEST(Verdict, PyTorchsOwnFailureFollowsItsEquation) {
  Incident lost = call_of("libc10_cuda.so", {}, trace::Outcome::kGiveUp);
  lost.terms[Term::kLimit] = 4096 * kMiB;
  lost.terms[Term::kLive] = 3600 * kMiB;
  lost.terms[Term::kCached] = 296 * kMiB;
  EXPECT_EQ(judge(lost).cause, Cause::kFragmentation)
      << "it emptied its cache, and this much was left in pieces";
  lost.terms[Term::kLive] = 3896 * kMiB;
  lost.terms[Term::kCached] = 0;
  EXPECT_EQ(judge(lost).cause, Cause::kCapacity);
  lost.outcome = trace::Outcome::kGranted;
  EXPECT_EQ(judge(lost).cause, Cause::kPyTorch) << "what served it says more";
  lost.library = "libnccl.so.2";
  lost.outcome = trace::Outcome::kGiveUp;
  EXPECT_EQ(judge(lost).cause, Cause::kAnotherLibrary);
}

TEST(Verdict, OfAShortRunOfPyTorchsItIsNotKnownWhetherItsUseGrows) {
  Incident incident = failure(1000, 60, {{Term::kLive, 900}, {Term::kCached, 100}});
  incident.library = "libc10_cuda.so";
  incident.outcome = trace::Outcome::kGiveUp;
  EXPECT_THAT(judge(incident).text, HasSubstr("ran too shortly to see whether"));
  for (uint64_t i = 0; i < 20; ++i) incident.course.push_back({i, (800 + i % 2 * 100) * kMiB});
  EXPECT_THAT(judge(incident).text, Not(HasSubstr("ran too shortly")));
  incident.course.clear();
  incident.library.clear();
  EXPECT_THAT(judge(incident).text, Not(HasSubstr("ran too shortly"))) << "Spillway's own has a history";
}

TEST(Verdict, FollowsTheEquation) {
  expect(Cause::kCapacity, "200.00 MiB too much", failure(1000, 300, {{Term::kLive, 900}}));
  expect(Cause::kFragmentation, "400.00 MiB are not in use, but in pieces of at most 150.00 MiB",
         failure(
             1000, 300,
             {{Term::kLive, 600}, {Term::kCached, 250}, {Term::kStranded, 50}, {Term::kLargestExtent, 150}}));
  expect(
      Cause::kFragmentation,
      "400.00 MiB are not in use, but no request can have them: they round blocks up, or are no whole page "
      "below the limit; 300.00 MiB were needed at once",
      failure(1000, 300, {{Term::kLive, 600}, {Term::kRounding, 400}, {Term::kLargestExtent, 0}}));
  expect(Cause::kPendingFrees, "300.00 MiB are freed",
         failure(1000, 250, {{Term::kLive, 600}, {Term::kPending, 300}, {Term::kCached, 100}}));
  expect(Cause::kPoolIsolation, "350.00 MiB lie in other memory pools",
         failure(1000, 250, {{Term::kLive, 600}, {Term::kPools, 350}, {Term::kPending, 50}}));
  expect(Cause::kLimit, "the limit is 1000.00 MiB on a device of 1.95 GiB",
         failure(1000, 300, {{Term::kLive, 900}, {Term::kDevice, 2000}}));
  expect(Cause::kOtherProcesses, "other processes hold 400.00 MiB",
         failure(1000, 300, {{Term::kLive, 500}, {Term::kOthers, 400}}));
  expect(Cause::kReserve, "200.00 MiB too much; 400.00 MiB are free and left to other libraries; --reserve",
         failure(1000, 300, {{Term::kLive, 500}, {Term::kReserve, 400}, {Term::kDevice, 2000}}));
  expect(Cause::kOutsideBytes, "hold 400.00 MiB",
         failure(1000, 300, {{Term::kLive, 500}, {Term::kContext, 400}}));
  expect(Cause::kNotMemory, "an extent of 500.00 MiB was free",
         failure(1000, 300, {{Term::kLive, 500}, {Term::kLargestExtent, 500}}));
  // A context of ordinary size is the device's price, not the cause.
  expect(Cause::kCapacity, "too much", failure(1000, 60, {{Term::kLive, 900}, {Term::kContext, 80}}));
  // The limit is below the device, but lifting it would not do.
  expect(Cause::kCapacity, "too much", failure(1000, 900, {{Term::kLive, 900}, {Term::kDevice, 1100}}));
}

TEST(Verdict, OfPyTorchsOwnLimitNamesTheFractionThatWouldHaveBeenEnough) {
  const auto refused = [](uint64_t device, uint64_t device_free) {
    Incident incident =
        failure(25, 9, {{Term::kLive, 20}, {Term::kDevice, device}, {Term::kDeviceFree, device_free}});
    incident.library = "libc10_cuda.so";
    incident.outcome = trace::Outcome::kGiveUp;
    return incident;
  };
  expect(
      Cause::kLimit,
      "4.00 MiB too much; the limit is 25.00 MiB on a device of 99.00 MiB; the limit of 25.00 MiB is "
      "PyTorch's "
      "own (torch.cuda.set_per_process_memory_fraction), and 60.00 MiB of the card are free: 0.30 would have",
      refused(99, 60));
  EXPECT_LT(static_cast<uint64_t>(0.29 * (100 * kMiB)), 29 * kMiB) << "as PyTorch computes it";
  expect(Cause::kLimit, ": 0.30 would have let this request in", refused(100, 60));
  expect(Cause::kLimit, "8.00 MiB of the card are free: no fraction would have let this", refused(100, 8));
  expect(Cause::kCapacity, "60.00 MiB of the card are free: no fraction would have let this",
         refused(28, 60));
}

TEST(Verdict, IsUnknownWithoutTheEquation) {
  EXPECT_EQ(judge(Incident{}).cause, Cause::kUnknown);
  Incident incident = failure(1000, 300, {{Term::kLive, 900}});
  incident.terms.erase(Term::kLimit);
  EXPECT_EQ(judge(incident).cause, Cause::kUnknown);
}

TEST(Verdict, SurvivesAbsurdNumbers) {
  for (const uint64_t limit : {uint64_t{0}, uint64_t{1}, ~uint64_t{0}}) {
    for (const uint64_t other : {uint64_t{0}, ~uint64_t{0}}) {
      Incident incident;
      incident.requested_bytes = ~uint64_t{0};
      for (const Term term : kSummands) incident.terms[term] = other;
      incident.terms[Term::kLimit] = limit;
      incident.terms[Term::kDevice] = incident.terms[Term::kDeviceFree] = other;
      incident.library = other == 0 ? "" : "libc10_cuda.so";
      EXPECT_FALSE(judge(incident).text.empty());
      EXPECT_TRUE(incident.residual_bytes().has_value());
    }
  }
}

}  // namespace
}  // namespace spillway::tools
