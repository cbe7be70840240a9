// The report at a run's end: bounded, true to what was measured, and well-formed whatever the run was.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <nlohmann/json.hpp>

#include "tests/trainer/scratch_folder.h"
#include "trainer/report/report.h"

namespace spillway::trainer {
namespace {

using testing::HasSubstr;
using testing::Not;

constexpr uint64_t kMiB = 1 << 20;

class Report : public testing::Test {
 protected:
  Report() {
    shape_.model = Architecture::usual(Family::kGpt2, 2, 64, 4, 64);
    shape_.batch = 8;
    history_.begin(shape_, machine_, plan_);
  }
  RunHistory::Step step(uint64_t number, uint64_t live = 5 * kMiB) const {
    return {.number = number,
            .plan = plan_,
            .loss = 2,
            .seconds = 0.5,
            .tokens = shape_.tokens(),
            .devices = {{.live = live, .reserved = live + kMiB, .limit = 12 * kMiB}}};
  }
  RunReport report() const {
    return {
        .verdict = "done", .model = to_string(shape_.model), .history = history_, .rates_from = "assumed"};
  }

  Shape shape_;
  Machine machine_{.devices = 1};
  Plan plan_{.micro_batch = 8, .evaluation_batch = 8};
  RunHistory history_;
};

TEST_F(Report, OfManyStepsIsNoLargerAndKeepsTheMost) {
  for (uint64_t i = 0; i < 100'000; ++i) history_.add(step(i, i == 54'321 ? 9 * kMiB : 5 * kMiB));
  const auto& points = history_.points();
  ASSERT_LE(points.size(), RunHistory::kMostPoints);
  ASSERT_GE(points.size(), RunHistory::kMostPoints / 4);
  uint64_t next = 0, high = 0;
  for (const StepPoint& point : points) {
    EXPECT_EQ(point.first, next) << "no step is in two points or in none";
    next = point.last + 1;
    if (&point != &points.back()) {
      EXPECT_EQ(point.last - point.first, points[0].last - points[0].first);
    }
    if (point.devices[0].live == 9 * kMiB) {
      ++high;
      EXPECT_LE(point.first, 54'321u);
      EXPECT_GE(point.last, 54'321u);
      EXPECT_EQ(point.devices[0].reserved, 10 * kMiB);
    }
    EXPECT_DOUBLE_EQ(point.seconds, 0.5 * double(point.last - point.first + 1));
  }
  EXPECT_EQ(next, 100'000u);
  EXPECT_EQ(high, 1u);
  EXPECT_EQ(history_.plans()[0].steps, 100'000u);
  EXPECT_DOUBLE_EQ(history_.plans()[0].seconds.median(), 0.5);
  EXPECT_LT(report_svg(report()).size(), 100'000u);
  EXPECT_LT(report_json(report()).dump().size(), 200'000u);
  EXPECT_LT(report_text(report()).size(), 10'000u);
}

TEST_F(Report, OfMergedStepsHasTheLargestPlan) {
  Plan small = plan_;
  small.micro_batch = 1;
  for (uint64_t i = 0; i < 4 * RunHistory::kMostPoints; ++i) {
    RunHistory::Step one = step(i);
    if (i % 2 == 1) one.plan = small;
    history_.add(one);
  }
  ASSERT_EQ(history_.plans().size(), 2u);
  for (const StepPoint& point : history_.points()) EXPECT_EQ(point.plan, 0u);
}

TEST_F(Report, TheMedianIsOfUndisturbedSteps) {
  RunHistory::Step slow = step(0);
  slow.seconds = 100;
  slow.undisturbed = false;
  history_.add(slow);
  history_.add(slow);
  history_.add(step(2));
  const Speed speed = speed_of(report(), history_.plans()[0]);
  EXPECT_DOUBLE_EQ(speed.achieved, 0.5);
  EXPECT_DOUBLE_EQ(speed.tokens_per_second, 8 * 64 / 0.5);
}

TEST_F(Report, ComparesTimesOnlyWhereRatesWereMeasured) {
  history_.add(step(0));
  RunReport assumed = report();
  EXPECT_FALSE(speed_of(assumed, history_.plans()[0]).share);
  EXPECT_THAT(report_text(assumed), HasSubstr("must not be compared"));
  EXPECT_TRUE(report_json(assumed)["plans"][0]["time"]["share"].is_null());
  RunReport measured = report();
  measured.rates_measured = true;
  const Speed speed = speed_of(measured, history_.plans()[0]);
  EXPECT_DOUBLE_EQ(speed.share.value_or(0), history_.plans()[0].estimate.time.seconds() / 0.5);
  // The products of the layers and of the head, 6 operations a weight and token, and causal attention.
  const double weights = 2 * 12 * 64.0 * 64 + 256 * 64, attention = 2 * 6 * 64.0 * 64;
  EXPECT_NEAR(speed.utilization.value_or(0), (6 * weights + attention) * 512 / (0.5 * machine_.flops), 1e-9);
  EXPECT_THAT(report_text(measured), HasSubstr("share of the predicted speed"));
}

TEST_F(Report, RecomputeIsNoUsefulArithmetic) {
  history_.add(step(0));
  Plan again = plan_;
  again.recompute = {0, 1};
  RunHistory other;
  other.begin(shape_, machine_, again);
  EXPECT_GT(other.plans()[0].estimate.time.operations, history_.plans()[0].estimate.time.operations);
  EXPECT_DOUBLE_EQ(other.operations(), history_.operations());
}

TEST_F(Report, TellsTheChangesOfPlanWithTheirReasons) {
  history_.add(step(0));
  history_.add(PlanMove{.step = 1,
                        .action = "recompute",
                        .phase = "forward",
                        .incident = 3,
                        .reason = "CUDA out of memory.\nSpillway: limit: 1 MiB too much\nmore",
                        .to = plan_});
  history_.add(
      PlanMove{.step = 2, .action = "grow_back", .phase = "", .incident = 0, .reason = "", .to = plan_});
  EXPECT_THAT(
      report_text(report()),
      HasSubstr("  step 1: recompute, out of memory in forward (incident 3), now micro_batch=8 "
                "evaluation_batch=8\n    Spillway: limit: 1 MiB too much\n  step 2: grow_back, now "));
  EXPECT_EQ(report_json(report())["moves"][0]["incident"], 3);
  EXPECT_THAT(report_svg(report()), HasSubstr("2  step 2: grow_back, now"));
}

TEST_F(Report, TellsForWhichRankAllUndidAStep) {
  history_.add(step(0));
  Plan before = plan_;
  before.micro_batch = 16;
  history_.add(PlanMove{.step = 1,
                        .action = "split_micro_batch",
                        .phase = "backward",
                        .incident = 3,
                        .reason = "full",
                        .to = plan_,
                        .asked = AskedUndo{2, false, 4, Guarantee::kNumericallyEqual, before, plan_}});
  EXPECT_THAT(
      report_text(report()),
      HasSubstr("  step 1: split_micro_batch, out of memory in backward (incident 3) of rank 2, now "
                "micro_batch=8 evaluation_batch=8\n    all ranks undid the step for rank 2, which had "
                "micro_batch=16 evaluation_batch=8 and then micro_batch=8 evaluation_batch=8; attempt 4, "
                "numerically_equal\n    full\n"));
  const auto json = report_json(report());
  EXPECT_EQ(json["moves"][0]["asked"]["rank"], 2);
  EXPECT_EQ(json["moves"][0]["asked"]["attempt"], 4);
  EXPECT_EQ(json["moves"][0]["asked"]["guarantee"], "numerically_equal");
  EXPECT_TRUE(json["moves"][0]["asked"]["why_all_end"].is_null());
  EXPECT_EQ(json["moves_of_others"], 1);
}

TEST_F(Report, TellsWhyAllRanksGaveAStepUp) {
  history_.add(step(0));
  history_.add(PlanMove{
      .step = 1,
      .action = "recompute_mlp",
      .phase = "backward",
      .incident = 3,
      .reason = "full",
      .to = plan_,
      .asked = AskedUndo{2, false, 4, Guarantee::kBitExact, plan_, plan_, "no plan is left on rank 1"}});
  EXPECT_THAT(
      report_text(report()),
      HasSubstr(
          "recompute_mlp, out of memory in backward (incident 3) of rank 2, now "
          "micro_batch=8 evaluation_batch=8\n    all ranks undid the step and ended: no plan is left on "
          "rank 1; rank 2 had micro_batch=8 evaluation_batch=8\n    full\n"));
  EXPECT_EQ(report_json(report())["moves"][0]["asked"]["why_all_end"], "no plan is left on rank 1");
}

TEST_F(Report, MovesAreBoundedToo) {
  history_.add(step(0));
  for (uint64_t i = 0; i < 10'000; ++i)
    history_.add(PlanMove{.step = i, .action = "x", .phase = "", .incident = 0, .reason = "", .to = plan_});
  EXPECT_EQ(history_.moves().size(), RunHistory::kMostMoves);
  EXPECT_EQ(history_.moves()[RunHistory::kMostMoves - 2].step, RunHistory::kMostMoves - 2);
  EXPECT_EQ(history_.moves().back().step, 9'999u) << "how it ended";
  EXPECT_THAT(report_text(report()), HasSubstr("and 9960 more"));
  EXPECT_THAT(report_svg(report()), HasSubstr("and 9984 more"));
}

TEST_F(Report, EvaluationsAreBoundedAndTheLastIsKept) {
  history_.add(step(0));
  for (uint64_t i = 0; i < 10'000; ++i) {
    history_.add(EvaluationPoint{.step = i, .loss = double(i)});
    ASSERT_LE(history_.evaluations().size(), RunHistory::kMostPoints);
    ASSERT_EQ(history_.evaluations().back().step, i);
  }
  EXPECT_EQ(history_.evaluations()[0].step, 0u);
  EXPECT_GT(history_.evaluations().size(), RunHistory::kMostPoints / 4);
}

TEST_F(Report, TextIsEscaped) {
  history_.add(step(0));
  history_.add(PlanMove{
      .step = 0, .action = "<&\">\xff\x01", .phase = "", .incident = 0, .reason = "\"\\\n\xff", .to = plan_});
  RunReport odd = report();
  odd.verdict = "<svg>&\xff";
  const std::string svg = report_svg(odd);
  EXPECT_THAT(svg, HasSubstr("&lt;svg&gt;&amp;\xef\xbf\xbd</text>"));
  EXPECT_THAT(svg, Not(HasSubstr("\xff")));
  EXPECT_THAT(svg, Not(HasSubstr("\x01")));
  const ScratchFolder scratch;
  std::string error;
  ASSERT_TRUE(write_report(odd, scratch.file(""), &error)) << error;
  const auto json = nlohmann::json::parse(ScratchFolder::read(scratch.file("report.json")));
  EXPECT_EQ(json["verdict"], "<svg>&\xef\xbf\xbd");
  EXPECT_EQ(json["moves"][0]["reason"], "\"\\\n\xef\xbf\xbd");
}

TEST_F(Report, OfNoStepAndOfLossesThatAreNoNumbersIsWhole) {
  EXPECT_THAT(report_text(report()), HasSubstr("No step was done."));
  EXPECT_THAT(report_svg(report()), HasSubstr("No step was done."));
  for (uint64_t i = 0; i < 3; ++i) {
    RunHistory::Step one = step(i);
    one.loss = i == 1 ? 2 : NAN;
    one.devices.clear();
    history_.add(one);
  }
  history_.add(EvaluationPoint{.step = 3, .loss = INFINITY});
  const std::string svg = report_svg(report());
  EXPECT_TRUE(svg.ends_with("</svg>\n"));
  EXPECT_THAT(svg, Not(HasSubstr("nan")));
  EXPECT_THAT(svg, Not(HasSubstr("inf")));
  EXPECT_THAT(svg, Not(HasSubstr("measured"))) << "what was not measured is not drawn";
  EXPECT_THAT(report_text(report()), Not(HasSubstr("reserved")));
  EXPECT_EQ(report_json(report())["points"][0]["devices"].size(), 0u);
}

// The axis of a loss that hardly differs, at any height, has an end.
TEST_F(Report, AnyLossCanBeDrawn) {
  for (const double loss : {0.0, -1e17, 1e17, 1e29, 1e300, -1e308, 5e-324}) {
    RunHistory history;
    history.begin(shape_, machine_, plan_);
    RunHistory::Step one = step(0);
    one.loss = loss;
    history.add(one);
    const RunReport of_one{.verdict = "", .model = "", .history = history, .rates_from = ""};
    EXPECT_LT(report_svg(of_one).size(), 20'000u) << loss;
    EXPECT_THAT(report_svg(of_one), Not(HasSubstr("nan")));
  }
}

TEST_F(Report, ThatCannotBeWrittenSaysSo) {
  history_.add(step(0));
  std::string error;
  EXPECT_FALSE(write_report(report(), "/proc/nowhere", &error));
  EXPECT_EQ(error,
            "the run's report could not be written: /proc/nowhere/report.txt: No such file or directory");
}

}  // namespace
}  // namespace spillway::trainer
