// What a rehearsal is called, by what its processes left: memory refused outside PyTorch's allocator,
// failures that the program dealt with, runs that used no device or found no kernels.
#include <gmock/gmock.h>

#include "tools/spillway/rehearse/judge/failure_text.h"
#include "tools/spillway/rehearse/judge/find.h"
#include "tools/spillway/rehearse/judge/findings.h"
#include "tools/spillway/rehearse/judge/judge.h"
#include "tools/spillway/rehearse/judge/outcome.h"
#include "tools/spillway/rehearse/report/report_json.h"
#include "tools/spillway/rehearse/report/report_text.h"
#include "tools/spillway/rehearse/report/series.h"
#include "tools/spillway/rehearse/run/baseline.h"

namespace spillway::tools {
namespace {

using ::testing::AnyOf;
using ::testing::ContainsRegex;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

CardView card_of(uint64_t capacity, uint64_t peak) {
  CardView card;
  card.capacity = capacity;
  card.peak = peak;
  return card;
}

// A Python process on the native allocator, on one card.
Observation python() {
  Observation process;
  process.has_probe = process.has_python = process.complete = true;
  process.allocator = "native";
  process.devices[0].allocator = AllocatorView{};
  process.devices[0].card = card_of(100, 10);
  return process;
}

// The card refused `requests`; PyTorch's allocator asked again `retries` times, and failed `failures` times.
Observation refused(uint64_t requests, std::map<std::string, uint64_t> parts = {}, uint64_t retries = 0,
                    uint64_t failures = 0) {
  Observation process = python();
  process.devices[0].card->refused = requests;
  process.devices[0].card->refused_parts = std::move(parts);
  process.devices[0].allocator->retries = retries;
  process.devices[0].allocator->failures = failures;
  process.failure_count = failures;
  return process;
}

Observation with_error(Observation process, const char* type, bool out_of_memory, bool names_memory) {
  process.uncaught_type = type;
  process.uncaught_message = "the message";
  process.uncaught_out_of_memory = out_of_memory;
  process.uncaught_names_memory = names_memory;
  return process;
}

Rehearsal ended(int code, const Observation& process) {
  Rehearsal rehearsal;
  rehearsal.exit_code = code;
  rehearsal.processes.push_back(process);
  return rehearsal;
}

TEST(RehearseOutcome, ARequestRefusedOutsideTheAllocatorIsAFailedRequest) {
  EXPECT_EQ(decide(ended(0, refused(1, {{"modules", 1}}))), Fit::kWentOn);
  EXPECT_EQ(decide(ended(0, refused(1))), Fit::kWentOn) << "nobody tried again: the program asked the driver";
  const Rehearsal failed =
      ended(1, with_error(refused(1, {{"modules", 1}}), "torch.AcceleratorError", false, true));
  EXPECT_EQ(decide(failed), Fit::kDoesNotFit);
  EXPECT_THAT(report_text({}, failed, {}), HasSubstr("for modules (1 ×)"));
  EXPECT_THAT(report_text({}, failed, {}), HasSubstr("torch.AcceleratorError: the message"));
}

TEST(RehearseOutcome, AnErrorThatNamesMemoryIsOneOnlyWhereTheCardRefusedSome) {
  EXPECT_EQ(decide(ended(1, with_error(python(), "builtins.RuntimeError", false, true))),
            Fit::kProgramFailed);
}

TEST(RehearseOutcome, RetriesOfTheAllocatorAreNoFailures) {
  EXPECT_EQ(decide(ended(0, refused(3, {}, 3))), Fit::kFits) << "each found room in the cache";
  EXPECT_EQ(decide(ended(0, refused(4, {}, 3))), Fit::kWentOn) << "one of them was not the allocator's";
  EXPECT_EQ(failed_requests(refused(2, {}, 1, 1)).seen(), 1U);
  Observation limited = refused(4, {}, 2);
  limited.splits_are_limited = true;
  EXPECT_EQ(decide(ended(0, limited)), Fit::kFits);
  EXPECT_THAT(report_text({}, ended(0, limited), {}), HasSubstr("is not known"));
}

TEST(RehearseOutcome, NotForLackOfMemoryIsNeverSaidWhenTheCardRefusedAnything) {
  const std::string text = "not for lack of the card's memory";
  EXPECT_THAT(report_text({}, ended(7, python()), {}), HasSubstr(text));
  EXPECT_THAT(report_text({}, ended(7, refused(1, {}, 1)), {}), Not(HasSubstr(text)));
  EXPECT_THAT(report_text({}, ended(7, refused(2, {}, 1, 1)), {}), HasSubstr("after 1 failed request"));
}

TEST(RehearseOutcome, WhereOneOfSeveralFailedRequestsIsShownTheOthersAreCounted) {
  const auto text_of = [](uint64_t failures) {
    Observation process = refused(failures, {}, 0, failures);
    process.failures.emplace_back().requested = 64 << 20;
    return report_text({}, ended(0, process), {});
  };
  EXPECT_THAT(text_of(3), ContainsRegex("asked 64.00 MiB on GPU 0.* \\(2 more are in --json\\)"));
  EXPECT_THAT(text_of(1), Not(HasSubstr("more are in")));
}

TEST(RehearseOutcome, OnlyAFailureThatEndedTheProgramIsThat) {
  EXPECT_EQ(decide(ended(7, refused(2, {}, 1, 1))), Fit::kProgramFailed) << "sys.exit(7), later";
  EXPECT_EQ(decide(ended(137, refused(2, {}, 1, 1))), Fit::kProgramFailed)
      << "killed, after a caught failure";
  Observation no_python = refused(1);
  no_python.has_probe = no_python.has_python = false;
  EXPECT_EQ(decide(ended(1, no_python)), Fit::kDoesNotFit) << "nobody is there to say why it ended";
  EXPECT_EQ(decide(ended(137, no_python)), Fit::kProgramFailed);
  EXPECT_THAT(report_text({}, ended(137, no_python), {}),
              HasSubstr("exit code 137 (signal 9, Killed), after 1 failed"));
  EXPECT_EQ(decide(ended(134, with_error(refused(2, {}, 1, 1), "torch.OutOfMemoryError", true, true))),
            Fit::kDoesNotFit)
      << "a crash on the way out does not change what ended it";
}

TEST(RehearseOutcome, ARunWithoutADeviceHasItsOwnEnd) {
  const Rehearsal nothing;
  EXPECT_EQ(decide(nothing), Fit::kNoDevice);
  EXPECT_EQ(exit_code_of(nothing), 23);
  EXPECT_THAT(report_text({}, nothing, {}), HasSubstr("no verdict: no device was used"));
  const Found found =
      find_largest({"n", 1, 9}, [](int64_t n) { return Tried{n, {Fit::kNoDevice, {}, 0, "", ""}}; });
  EXPECT_TRUE(found.stopped);
}

TEST(RehearseOutcome, ARuntimeOfTheProgramsOwnIsTheReasonForNoVerdict) {
  Observation process;
  process.other_runtime = "/opt/program";
  const char* reason = "/opt/program brings a CUDA runtime of its own";
  const Rehearsal failed = ended(1, process);
  EXPECT_EQ(decide(failed), Fit::kProgramFailed);
  EXPECT_THAT(report_text({}, failed, {}), HasSubstr(std::string("lack of the card's memory\n  ") + reason));
  EXPECT_THAT(failure_line(failed), HasSubstr(reason));
  const Rehearsal without = ended(0, process);
  EXPECT_EQ(decide(without), Fit::kNoDevice);
  EXPECT_THAT(report_text({}, without, {}), HasSubstr(reason));
  EXPECT_THAT(report_text({}, without, {}), Not(HasSubstr("is it a CUDA build of PyTorch")));
}

TEST(RehearseOutcome, ACardWithoutKernelsHasItsOwnEndAndDoesNotFit) {
  Observation process = with_error(python(), "torch.AcceleratorError", false, false);
  process.uncaught_message = "CUDA error: no kernel image is available for execution on the device";
  EXPECT_EQ(decide(ended(1, process)), Fit::kNoKernels);
  EXPECT_EQ(exit_code_of(ended(1, process)), 24);
  const std::string text = report_text({}, ended(1, process), {});
  EXPECT_THAT(text, HasSubstr("not built for this kind of card"));
  EXPECT_THAT(text, Not(AnyOf(HasSubstr("peak"), HasSubstr("margin"), HasSubstr("conditional"))));
  EXPECT_EQ(exit_code_of_comparison({{Fit::kFits, 0}, {Fit::kNoKernels, 24}}), 24);
  EXPECT_EQ(exit_code_of_comparison({{Fit::kDoesNotFit, 20}, {Fit::kNoKernels, 24}}), 20);
  EXPECT_EQ(exit_code_of_comparison({{Fit::kNoKernels, 24}}), 24);
  EXPECT_EQ(exit_code_of_comparison({{Fit::kDoesNotFit, 20}, {Fit::kProgramFailed, 7}}), 7);
}

TEST(RehearseOutcome, TheReportNamesWhatWasInForce) {
  Observation process = python();
  process.values = "random";
  process.expandable_segments = true;
  const std::string text = report_text({}, ended(0, process), {});
  EXPECT_THAT(text, HasSubstr("values random"));
  EXPECT_THAT(text, HasSubstr("allocator native with expandable segments"));
  for (const int code : {2, 4, 21, 126, 127})
    EXPECT_THAT(report_text({}, ended(code, python()), {}), HasSubstr("the code is the program's own"));
  EXPECT_THAT(report_text({}, ended(7, python()), {}), Not(HasSubstr("the code is the program's own")));
}

TEST(RehearseOutcome, MoreThanTheCardHeldWasNotReserved) {
  Observation process = python();
  process.devices[0].allocator->peak_reserved = 150;
  process.devices[0].card->allocator_at_peak = 10;
  EXPECT_EQ(need_of(process.devices[0]).reserved, 10U);
  EXPECT_EQ(need_of(process.devices[0]).peak, 10U);
  process.devices[0].card.reset();
  EXPECT_EQ(need_of(process.devices[0]).peak, 150U);
}

TEST(RehearseOutcome, TheReportSaysHowCertainTheBytesOutsidePyTorchAre) {
  Observation process = python();
  process.devices[0].card->card = "h100-80gb";
  process.devices[0].card->modelled_at_peak = {
      {"context", 9}, {"cublas.handle", 8}, {"cudnn.library", 0}, {"nccl", 7}};
  const std::string text = report_text({}, ended(0, process), {});
  EXPECT_THAT(text, HasSubstr("  of it documented: cublas.handle 8 B\n"));
  EXPECT_THAT(text, HasSubstr("  of it modelled, not measured: context 9 B, nccl 7 B\n"));
  EXPECT_THAT(text, Not(HasSubstr("cudnn")));
  EXPECT_THAT(report_json({}, ended(0, process), {}), HasSubstr("\"certainty\": \"documented\""));
}

TEST(RehearseOutcome, FitsIsConditionalWhereTheDeviceDecidesShapesOrWasRead) {
  Observation process = python();
  process.values = "zeros";
  EXPECT_THAT(report_text({}, ended(0, process), {}), StartsWith("fits: "));
  process.reads = {{0, ReadKind::kValue, 3, 12}};
  EXPECT_THAT(report_text({}, ended(0, process), {}),
              StartsWith("fits, if no value that it read decides what it allocates: "));
  process.reads.push_back({0, ReadKind::kShape, 2, 8});
  const std::string text = report_text({}, ended(0, process), {});
  EXPECT_THAT(text, StartsWith("fits, if 2 shapes that the device decides are no larger than with zeros: "));
  EXPECT_THAT(text.substr(0, 400), HasSubstr("--values compute runs with true values"));
  EXPECT_THAT(report_json({}, ended(0, process), {}), HasSubstr("\"condition\": \"if 2 shapes"));
  EXPECT_THAT(report_text({}, ended(7, process), {}), StartsWith("no verdict: the program failed: "));
  process.values = "compute";
  EXPECT_THAT(report_text({}, ended(0, process), {}), StartsWith("fits: "));
}

TEST(RehearseOutcome, OnlyAProgramThatFitsHasAMargin) {
  EXPECT_THAT(report_text({}, ended(0, python()), {}), ContainsRegex("peak by device[^\n]*\nGPU 0 .* 90 B "));
  for (const auto& [code, process] : {std::pair{0, refused(2, {}, 1, 1)}, {7, python()}})
    EXPECT_THAT(report_text({}, ended(code, process), {}), Not(HasSubstr("90 B"))) << code;
  EXPECT_THAT(report_text({}, ended(7, python()), {}), HasSubstr("peak until it ended"));
}

TEST(RehearseOutcome, StepsAreNamedAsTheyWereSeen) {
  EXPECT_EQ(step_text(1, 0), "before any optimizer step");
  EXPECT_EQ(step_text(1, 1), "in step 1");
  EXPECT_EQ(step_text(4, 3), "after step 3");
}

TEST(RehearseOutcome, AKilledProgramMayHaveRunOutOfTheHostsMemory) {
  EXPECT_THAT(report_text({}, ended(137, python()), {}), HasSubstr("when the host, not the card, runs out"));
  EXPECT_THAT(report_text({}, ended(143, python()), {}), Not(HasSubstr("the host")));
}

TEST(RehearseOutcome, ValuesAreHintedAtOnlyWhereTheyMayBeWhy) {
  Observation process = python();
  process.reads = {{0, ReadKind::kValue, 3, 12}};
  const auto says = [&](int code, const char* type) {
    return report_text({}, ended(code, with_error(process, type, false, false)), {});
  };
  const std::string hint = "which may be why";
  EXPECT_THAT(says(1, "builtins.ValueError"), HasSubstr(hint));
  EXPECT_THAT(says(3, ""), HasSubstr(hint)) << "its own decision";
  for (const char* type : {"builtins.ModuleNotFoundError", "builtins.FileNotFoundError", "builtins.KeyError"})
    EXPECT_THAT(says(1, type), Not(HasSubstr(hint))) << type;
  EXPECT_THAT(says(139, ""), Not(HasSubstr(hint)));
  process.values = "compute";
  EXPECT_THAT(says(1, "builtins.ValueError"), Not(HasSubstr(hint)));
}

Rules with_budget(uint64_t bytes) {
  Rules rules;
  rules.budget = bytes;
  return rules;
}

TEST(RehearseCheck, OfAProgramThatDoesNotFitNoPeakIsJudged) {
  Observation process = with_error(refused(2, {}, 1, 1), "torch.OutOfMemoryError", true, true);
  Failure& failure = process.failures.emplace_back();
  failure.requested = 64 << 20;
  failure.step = 2;
  failure.place = 5;
  process.steps = 3;
  process.places[5].label = "model.py <module>";
  Rules rules = with_budget(50);
  rules.before = Baseline{};
  rules.before->devices["GPU 0"] = {1, 1, {}};
  const auto findings = judge({}, rules, ended(1, process));
  EXPECT_FALSE(none_failed(findings));
  for (const std::string& text :
       {findings_text(findings), findings_junit(findings, 1), findings_markdown(findings)}) {
    EXPECT_THAT(text, HasSubstr("does not fit: asked 64.00 MiB on GPU 0 in step 2, at model.py "));
    EXPECT_THAT(text, Not(HasSubstr("✅")));
    EXPECT_THAT(text, Not(HasSubstr("what grew")));
    EXPECT_THAT(text, HasSubstr("not judged"));
  }
  EXPECT_THAT(findings_markdown(findings), HasSubstr("at model.py &lt;module>: "));
  EXPECT_THAT(findings_junit(findings, 1), HasSubstr("tests=\"3\" failures=\"1\" skipped=\"2\""));
}

TEST(RehearseCheck, AProgramThatFailedIsNamedByItsCodeAndItsLastError) {
  const auto findings = judge({}, {}, ended(7, with_error(python(), "builtins.ValueError", false, false)));
  EXPECT_THAT(findings_junit(findings, 1), HasSubstr("exit code 7, and not for lack of the card's memory; "
                                                     "builtins.ValueError: the message"));
}

TEST(RehearseCheck, AConditionalVerdictPassesWithItsCondition) {
  Observation process = python();
  process.reads = {{0, ReadKind::kShape, 1, 8}};
  const auto findings = judge({}, with_budget(50), ended(0, process));
  EXPECT_TRUE(none_failed(findings));
  const std::string text =
      "fits, if 1 shape that the device decides is no larger than with zeros (--values compute";
  EXPECT_THAT(findings_text(findings), StartsWith("ok, if  the program fits the card: " + text));
  EXPECT_THAT(findings_junit(findings, 1), HasSubstr("<system-out>" + text));
  EXPECT_THAT(findings_markdown(findings), HasSubstr("| ⚠️ | the program fits the card | " + text));
  EXPECT_THAT(findings_markdown(findings), HasSubstr("| ✅ | GPU 0: peak against the budget |"));
}

TEST(RehearseOutcome, ADeviceOfTheBaselineThatIsNotUsedAnyMoreIsAFinding) {
  Rules rules;
  rules.before = Baseline{};
  rules.before->devices["GPU 0"] = rules.before->devices["GPU 1"] = {1 << 20, 1 << 20, {}};
  const auto findings = judge({}, rules, ended(0, python()));
  EXPECT_FALSE(none_failed(findings));
  ASSERT_EQ(findings.size(), 3u) << "that it fits, and one of each device";
  EXPECT_EQ(findings[1].judged, Judged::kPassed) << findings[1].text;
  EXPECT_EQ(findings[2].judged, Judged::kFailed);
  EXPECT_THAT(findings[2].text, HasSubstr("the baseline has GPU 1, and this run did not use it"));
}

}  // namespace
}  // namespace spillway::tools
