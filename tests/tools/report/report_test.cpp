// `spillway report` on traces that are written here: the text word for word, the data, and what it refuses.
// SPILLWAY_UPDATE_GOLDEN=1 writes the expected texts anew.
#include <gmock/gmock.h>

#include <functional>
#include <nlohmann/json.hpp>

#include "tests/tools/report/story.h"
#include "tests/tools/support.h"
#include "trace/writing_process.h"

namespace spillway::tools {
namespace {

using ::testing::ContainsRegex;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;
using trace::Kind;
using trace::Outcome;
using trace::Record;
using trace::Term;

// Rescued by the cache, then unwound to recompute, then given up.
void write_hard_run(Story& story) {
  story.trace().set("SPILLWAY_LIMIT", "1GiB");
  story.step(Kind::kStepBegin, 1, 0);
  story.phase("forward");
  story.allocate(0x7f0000200000, 1000, 1024);
  story.memory(500 * kMiB, 700 * kMiB, kGiB, 800 * kMiB);
  fail_request(story, 1, 500 * kMiB, 400 * kMiB, 200 * kMiB);
  story.tried(1, "release-cache", 1, 400 * kMiB, 380 * kMiB, 850);
  story.outcome(1, Outcome::kGranted, 380 * kMiB, 900);
  story.step(Kind::kStepEnd, 1, 0, 4096);
  story.step(Kind::kStepBegin, 2, 0);
  story.phase("backward");
  fail_request(story, 2, 900 * kMiB, 0, 200 * kMiB);
  story.tried(2, "release-cache", 1, 0, 0, 12);
  story.tried(2, "recompute", 1, 250 * kMiB, 0, 3);
  story.outcome(2, Outcome::kUnwind, 0, 40);
  story.plan_change(2, 2, "recompute the blocks of the upper half");
  story.step(Kind::kStepBegin, 2, 1);
  story.memory(900 * kMiB, 1000 * kMiB, kGiB, 1004 * kMiB);
  fail_request(story, 3, 950 * kMiB, 0, 250 * kMiB);
  story.tried(3, "program's own", 0, 10 * kMiB, 0, 1200000);
  story.outcome(3, Outcome::kGiveUp, 0, 1200123);
}

class Report : public CommandTest {
 protected:
  std::string path() const { return (folder() / "run.trace").string(); }

  // The text with what differs from run to run made equal.
  std::string report(std::vector<std::string> flags = {}) const {
    flags.insert(flags.begin(), {"report", "run.trace"});
    const Ran ran = run(flags);
    EXPECT_EQ(ran.code, 0) << ran.err;
    EXPECT_EQ(ran.err, "");
    const size_t at = ran.out.find("(process ");
    if (at == std::string::npos) return ran.out;
    return ran.out.substr(0, at) + "(process PID" + ran.out.substr(ran.out.find(')', at));
  }

  static void expect_golden(const std::string& name, const std::string& text) {
    const std::string file = std::string(GOLDEN_FOLDER) + "/" + name;
    if (std::getenv("SPILLWAY_UPDATE_GOLDEN") != nullptr && !HasFailure()) std::ofstream(file) << text;
    std::ifstream stream(file);
    EXPECT_EQ(text, std::string(std::istreambuf_iterator<char>(stream), {})) << "differs from " << file;
  }
};

TEST_F(Report, TellsOfARunThatGaveUp) {
  Story story(path());
  write_hard_run(story);
  expect_golden("gave_up.txt", report({"--events", "8"}));
}

TEST_F(Report, ShowsTheIncidentThatIsAskedFor) {
  Story story(path());
  write_hard_run(story);
  expect_golden("incident_1.txt", report({"--incident", "1", "--events", "0"}));
  const Ran absent = run({"report", "run.trace", "--incident", "9"});
  EXPECT_EQ(absent.code, 2);
  EXPECT_THAT(absent.err, HasSubstr("no incident 9; the trace has 1 to 3"));
}

TEST_F(Report, ShowsTheLastOfThoseThatWereNotRescued) {
  Story story(path());
  for (uint32_t i = 1; i <= 4; ++i) {
    story.oom(i, 100, 512, 512);
    story.outcome(i, i == 4 ? Outcome::kGranted : Outcome::kGiveUp, 0, 1);
  }
  EXPECT_EQ(nlohmann::json::parse(report({"--json"}))["shown_incident"], 3);
}

TEST_F(Report, SaysFirstWhetherAllWasRescued) {
  Story story(path());
  const auto fail = [&](uint32_t incident, Outcome outcome) {
    fail_request(story, incident, 500 * kMiB, 400 * kMiB, 200 * kMiB);
    story.outcome(incident, outcome, 0, 1);
  };
  const std::string start = "Spillway report: run.trace\nRESCUED: ";
  fail(1, Outcome::kGranted);
  EXPECT_THAT(report(), StartsWith(start + "the only allocation failure; the program went on.\nVerdict: "));
  fail(2, Outcome::kUnwind);
  EXPECT_THAT(report(), StartsWith(start + "all 2 allocation failures, 1 of them by doing a step again with "
                                           "another plan; the program went on.\n"));
  fail(3, Outcome::kGiveUp);
  EXPECT_THAT(report(), StartsWith("Spillway report: run.trace\nNOT RESCUED: 1 of 3 allocation failures.\n"));
}

TEST_F(Report, AStepThatWasNotDoneAgainIsNoRescue) {
  const auto unwind = [&](bool goes_on) {
    Story story(path());
    story.step(Kind::kStepBegin, 4, 0);
    story.oom(1, 100, 512, 512);
    story.outcome(1, Outcome::kUnwind, 0, 1);
    if (goes_on) story.step(Kind::kStepBegin, 4, 1);
  };
  unwind(false);
  EXPECT_THAT(report(), HasSubstr("NOT RESCUED: 1 of 1 allocation failure."));
  EXPECT_EQ(nlohmann::json::parse(report({"--json"}))["run"]["gave_up"], 1);
  unwind(true);
  EXPECT_THAT(report(), HasSubstr("RESCUED: the only allocation failure, by doing a step again"));
}

// It marks the step once, catches the error, and does the step again inside the mark.
TEST_F(Report, AStepThatEndsWasDoneAgain) {
  {
    Story story(path());
    story.step(Kind::kStepBegin, 4, 0);
    story.oom(1, 100, 512, 512, "forward");
    story.outcome(1, Outcome::kUnwind, 0, 1);
    story.step(Kind::kStepEnd, 4, 0);
  }
  EXPECT_THAT(report(), HasSubstr("RESCUED: the only allocation failure, by doing a step again"));
}

// A rank changes its plan, and then all ranks agree to give up.
TEST_F(Report, AStepThatHasItsNewPlanAndDoesNotBeginIsNoRescue) {
  {
    Story story(path());
    story.step(Kind::kStepBegin, 4, 0);
    story.oom(1, 100, 512, 512, "forward");
    story.outcome(1, Outcome::kUnwind, 0, 1);
    story.plan_change(4, 1, "recompute");
  }
  EXPECT_THAT(report(), HasSubstr("NOT RESCUED: 1 of 1 allocation failure."));
}

// An evaluation after the last step has no step that begins again.
TEST_F(Report, AnEvaluationIsDoneAgainWhereItsPhaseGoesOn) {
  const auto unwind = [&](const std::function<void(Story&)>& then) {
    Story story(path());
    story.step(Kind::kStepBegin, 4, 0);
    story.step(Kind::kStepEnd, 4, 0);
    story.phase("evaluation");
    story.oom(1, 100, 512, 512, "evaluation");
    story.outcome(1, Outcome::kUnwind, 0, 1);
    then(story);
  };
  const std::string rescued = "RESCUED: the only allocation failure, by doing a step again";
  const std::string not_rescued = "NOT RESCUED: 1 of 1 allocation failure.";
  unwind([](Story& story) {  // the trainer: with the plan that it had
    story.phase("");
    story.phase("evaluation");
  });
  EXPECT_THAT(report(), HasSubstr(rescued));
  unwind(
      [](Story& story) { story.allocate(0x7f0000200000, 100, 512); });  // another program: inside the phase
  EXPECT_THAT(report(), HasSubstr(rescued));
  unwind([](Story& story) { story.phase(""); });
  EXPECT_THAT(report(), HasSubstr(not_rescued));
  unwind([](Story& story) {  // a rank: all ranks agree to give up
    story.phase("");
    story.plan_change(4, 1, "split_evaluation");
    story.allocate(0x7f0000200000, 100, 512);
  });
  EXPECT_THAT(report(), HasSubstr(not_rescued));
}

TEST_F(Report, WhatIsOutsideOfStepsMayHaveBeenDoneAgain) {
  {
    Story story(path());
    story.step(Kind::kStepBegin, 4, 0);
    story.step(Kind::kStepEnd, 4, 0);
    story.oom(1, 100, 512, 512, "validation");
    story.outcome(1, Outcome::kUnwind, 0, 1);
  }
  EXPECT_THAT(report(), HasSubstr("RESCUED: the only allocation failure, by doing a step again"));
}

TEST_F(Report, SamplesAfterThePeakLeaveItAsItWas) {
  Story story(path());
  story.memory(900 * kMiB, 1000 * kMiB, kGiB, 1004 * kMiB);
  story.memory(100 * kMiB, 200 * kMiB, kGiB, 200 * kMiB);
  const auto memory = nlohmann::json::parse(report({"--json"}))["run"]["memory"][0];
  EXPECT_EQ(memory["peak_live_bytes"], 900 * kMiB);
  EXPECT_EQ(memory["peak_reserved_bytes"], 1004 * kMiB);
}

TEST_F(Report, SaysThatNothingFailed) {
  {
    Story story(path());
    story.step(Kind::kStepBegin, 1, 0);
    story.allocate(0x7f0000200000, 1024, 1024);
    story.step(Kind::kStepEnd, 1, 0, 512);
  }
  expect_golden("no_failure.txt", report());
}

TEST_F(Report, TellsOfAnEmptyTrace) {
  {
    Story story(path());
  }
  EXPECT_THAT(report(), HasSubstr("No allocation failed."));
}

TEST_F(Report, SaysAtOnceThatAFileIsNotWhole) {
  {
    Story story(path());
    story.step(Kind::kStepBegin, 1, 0);
  }
  std::filesystem::resize_file(path(), 5000);
  const std::string text = report();
  EXPECT_LT(text.find("NOT WHOLE: the file ends early"), text.find("The run"));
  EXPECT_THAT(text, HasSubstr("No allocation failed in what is left of the trace."));
}

TEST_F(Report, TellsWhoHoldsTheMemoryOfAProcessThatRuns) {
  Story story(path());  // of this process
  story.allocate(0x7f0000000000, 30 * kMiB, 30 * kMiB);
  story.place(0x7f0000000000, "/src/model.py:12 build\n/src/train.py:3 main");
  story.allocate(0x7f0010000000, 10 * kMiB, 10 * kMiB);
  story.place(0x7f0010000000, "/src/model.py:40 forward\n/src/train.py:9 main");
  story.free(0x7f0010000000, 10 * kMiB);
  const std::string text = report();
  EXPECT_THAT(text, ContainsRegex("Who holds it now\n.*\n +30.00 MiB +100% +1 .*model.py:12 build"));
  EXPECT_THAT(text, ContainsRegex("At the peak of 40.00 MiB.*\n.*\n +30.00 MiB.*\n +10.00 MiB"));
  const auto at_last = nlohmann::json::parse(report({"--json"}))["at_last"];
  EXPECT_EQ(at_last["in_use_bytes"], 30 * kMiB);
  EXPECT_EQ(at_last["older_bytes"], 0);
  EXPECT_EQ(at_last["holders"][0]["bytes"], 30 * kMiB);
}

TEST_F(Report, ListsNoPlacesWhereNoStacksAreTaken) {
  Story story(path());
  story.trace().set("stacks", "none");
  story.allocate(0x7f0000000000, 30 * kMiB, 30 * kMiB);
  EXPECT_THAT(report(), Not(HasSubstr("Who holds it")));
  EXPECT_EQ(nlohmann::json::parse(report({"--json"}))["at_last"]["in_use_bytes"], 30 * kMiB);
}

TEST_F(Report, TellsWhoHoldsTheMemoryAfterAnEarlierFailure) {
  Story story(path());
  story.allocate(0x7f0000000000, 30 * kMiB, 30 * kMiB);
  story.place(0x7f0000000000, "/src/model.py:12 build");
  fail_request(story, 1, 500 * kMiB, 400 * kMiB, 200 * kMiB);
  story.allocate(0x7f0010000000, 10 * kMiB, 10 * kMiB);
  story.place(0x7f0010000000, "/src/model.py:40 after");
  EXPECT_THAT(report(),
              ContainsRegex("Who holds it now\n.*\n +30.00 MiB +6% .*\n +10.00 MiB +2% .*:40 after"));
  const auto at_last = nlohmann::json::parse(report({"--json"}))["at_last"];
  EXPECT_EQ(at_last["in_use_bytes"], 510 * kMiB) << "with what the equation counts and the history has not";
}

TEST_F(Report, CountsWhatIsOlderThanTheHistoryBesideTheHolders) {
  Story story(path());
  story.allocate(0x7f0000000000, 100 * kMiB, 100 * kMiB);
  for (uint64_t i = 0; i < 3000; ++i) {  // more than the ring keeps
    story.memory(100 * kMiB, 110 * kMiB, 0, 110 * kMiB);
    story.allocate(0x7f0010000000, 10 * kMiB, 10 * kMiB);
    if (i + 1 < 3000) story.free(0x7f0010000000, 10 * kMiB);
  }
  const std::string text = report();
  EXPECT_THAT(text, HasSubstr("  100.00 MiB besides were allocated before what is left of the history"));
  EXPECT_THAT(text, ContainsRegex("\n +10.00 MiB +9% +1 "));
  EXPECT_THAT(text, Not(HasSubstr("At the peak"))) << "of what is left alone";
  const auto at_last = nlohmann::json::parse(report({"--json"}))["at_last"];
  EXPECT_EQ(at_last["in_use_bytes"], 110 * kMiB);
  EXPECT_EQ(at_last["older_bytes"], 100 * kMiB);
}

// These have no line any more: more follows than the ring keeps.
void hold_since_long_ago(Story& story, uint64_t bytes) {
  story.allocate(0x7f0000000000, bytes, bytes);
  for (uint64_t i = 0; i < 1000; ++i) {
    story.allocate(0x7f0010000000, 10 * kMiB, 10 * kMiB);
    story.free(0x7f0010000000, 10 * kMiB);
  }
  story.memory(bytes, 110 * kMiB, 0, 110 * kMiB);
}

TEST_F(Report, TellsWhatTheProcessToldWhereTheHistoryHasLostIt) {
  Story story(path());
  hold_since_long_ago(story, 100 * kMiB);
  story.held(1'000, "/src/model.py:12 build\n/src/train.py:3 main", 1 * kMiB, 1);
  story.all_held(1'000, kMiB);
  story.held(2'000, "", 8 * kMiB, 4);
  story.held(2'000, "/src/model.py:12 build\n/src/train.py:3 main", 90 * kMiB, 9);
  story.all_held(2'000, 100 * kMiB);
  story.held(3'000, "/src/model.py:99 never_told_whole", 70 * kMiB, 9);
  story.allocate(0x7f0010000000, 10 * kMiB, 10 * kMiB);
  const std::string text = report();
  EXPECT_THAT(text,
              ContainsRegex("Who holds it now \\(as the process told it .* ago\\)\n.*\n +90.00 MiB +90% +9 "
                            ".*model.py:12 build.*\n +8.00 MiB +8% +4 .*further places"));
  EXPECT_THAT(text, Not(HasSubstr("At the peak")));
  EXPECT_THAT(text, Not(HasSubstr("besides were allocated before")));
  const auto at_last = nlohmann::json::parse(report({"--json"}))["at_last"];
  EXPECT_EQ(at_last["in_use_bytes"], 100 * kMiB);
  EXPECT_EQ(at_last["older_bytes"], 0);
  EXPECT_EQ(at_last["told_ns"], 2'000);
}

TEST_F(Report, BelievesTheHistoryWhereItHasNearlyAll) {
  Story story(path());
  hold_since_long_ago(story, 5 * kMiB);
  story.held(2'000, "/src/model.py:12 build", 5 * kMiB, 1);
  story.all_held(2'000, 5 * kMiB);
  story.allocate(0x7f0010000000, 50 * kMiB, 50 * kMiB);
  const auto at_last = nlohmann::json::parse(report({"--json"}))["at_last"];
  EXPECT_EQ(at_last["told_ns"], nullptr);
  EXPECT_EQ(at_last["older_bytes"], 5 * kMiB);
}

TEST_F(Report, ThePeakIsNoLessThanWhatIsHeldAtLast) {
  Story story(path());
  story.memory(5 * kMiB, 20 * kMiB, kGiB, 20 * kMiB);
  EXPECT_THAT(report(), HasSubstr("peak 20.00 MiB reserved, 5.00 MiB live"));
  story.allocate(0x7f0010000000, 50 * kMiB, 50 * kMiB);
  EXPECT_THAT(report(), HasSubstr("peak 55.00 MiB reserved, 55.00 MiB live"));
}

TEST_F(Report, TellsWhenTheTraceEndsInsideAFailure) {
  Story story(path());
  story.oom(1, 100, 512, 512);
  const std::string text = report();
  EXPECT_THAT(text, HasSubstr("Verdict: unknown"));
  EXPECT_THAT(text, HasSubstr("outcome: none; the trace ends here"));
  EXPECT_THAT(text, HasSubstr("1 without an outcome"));
  EXPECT_THAT(text, HasSubstr("the process still runs"));
}

// As where the id of a process that is gone was given out again, or the trace is of another container.
TEST_F(Report, AnotherProcessOfTheNumberIsNotTheWriter) {
  Story story(path());
  const auto rewrite = [&](const std::function<void(trace::Writer&)>& change) {
    trace::Writer writer;
    std::fstream file(path(), std::ios::in | std::ios::out | std::ios::binary);
    file.seekg(trace::kWriterOffset).read(reinterpret_cast<char*>(&writer), sizeof writer);
    change(writer);
    writer.check = trace::writer_check(writer);
    file.seekp(trace::kWriterOffset).write(reinterpret_cast<const char*>(&writer), sizeof writer);
  };
  const auto running = [&] { return nlohmann::json::parse(report({"--json"}))["run"]["running"]; };
  EXPECT_THAT(report(), HasSubstr("the process still runs\n"));
  EXPECT_EQ(running(), true);
  rewrite([](trace::Writer& writer) { ++writer.process_start; });
  EXPECT_THAT(report(), HasSubstr("The process ended without closing the trace"));
  EXPECT_EQ(running(), false);
  rewrite([](trace::Writer& writer) { ++writer.id_space; });
  EXPECT_THAT(report(), HasSubstr("or it still runs in another container or on another machine"));
  EXPECT_EQ(running(), nullptr);
}

TEST_F(Report, PrefersThePhaseOfTheThreadThatFailed) {
  Story story(path());
  story.phase("another thread's");
  story.oom(1, 100, 512, 512, "forward");
  EXPECT_THAT(report(), HasSubstr("phase forward\n"));
}

TEST_F(Report, ShowsAResidual) {
  Story story(path());
  fail_request(story, 1, 500 * kMiB, 400 * kMiB, 200 * kMiB);
  story.equation(1, {{Term::kFree, 0}});
  EXPECT_THAT(report(), HasSubstr("104857600 B"));
  EXPECT_THAT(report(), HasSubstr("the lines above do not add up to the limit"));
}

TEST_F(Report, SaysThatAnIncidentHasAResidualWhicheverItShows) {
  Story story(path());
  fail_request(story, 1, 500 * kMiB, 400 * kMiB, 200 * kMiB);
  story.equation(1, {{Term::kFree, 0}});
  fail_request(story, 2, 500 * kMiB, 400 * kMiB, 200 * kMiB);
  EXPECT_THAT(report({"--incident", "2"}),
              HasSubstr("of 1 incident, first of 1, the terms do not add up to the limit"));
}

TEST_F(Report, ShortensWhatARunHasHundredsOf) {
  Story story(path());
  for (uint32_t i = 1; i <= 100; ++i) {
    story.oom(i, 100, 512, 512);
    story.plan_change(i, i, "split");
  }
  const std::string text = report({"--events", "0"});
  EXPECT_THAT(text, HasSubstr("80 earlier plan changes"));
  EXPECT_THAT(text, HasSubstr("plan changed at step 81 "));
  EXPECT_THAT(text, Not(HasSubstr("plan changed at step 80 ")));
  EXPECT_LT(std::count(text.begin(), text.end(), '\n'), 80);
}

TEST_F(Report, GivesTheSameAsData) {
  Story story(path());
  write_hard_run(story);
  const auto data = nlohmann::json::parse(report({"--json", "--events", "2"}));
  EXPECT_EQ(data["shown_incident"], 3);
  EXPECT_EQ(data["incidents"].size(), 3u);
  const auto& first = data["incidents"][0];
  EXPECT_EQ(first["cause"], "fragmentation");
  EXPECT_EQ(first["requested_bytes"], 300 * kMiB - 100);
  EXPECT_EQ(first["equation"]["residual_bytes"], 0);
  EXPECT_EQ(first["equation"]["largest_extent_bytes"], 120 * kMiB);
  EXPECT_EQ(first["ladder"][0]["strategy"], "release-cache");
  EXPECT_EQ(first["ladder"][0]["guarantee"], "bit exact");
  EXPECT_EQ(first["outcome"], "granted");
  EXPECT_EQ(first["phase"], "forward");
  EXPECT_EQ(data["incidents"][2]["ladder"][0]["guarantee"], nullptr);
  EXPECT_EQ(data["run"]["rescued"], 1);
  EXPECT_EQ(data["run"]["unwound"], 1);
  EXPECT_EQ(data["run"]["gave_up"], 1);
  EXPECT_EQ(data["run"]["last_step_begun"]["step"], 2);
  EXPECT_EQ(data["run"]["last_step_begun"]["attempt"], 1);
  EXPECT_EQ(data["run"]["tokens"], 4096);
  EXPECT_EQ(data["run"]["memory"][0]["peak_reserved_bytes"], 1004 * kMiB);
  EXPECT_EQ(data["run"]["plan_changes"][0]["reason"], "recompute the blocks of the upper half");
  const auto& last = data["last_events"];
  EXPECT_EQ(last["groups"].size(), 2u);
  EXPECT_EQ(last["groups"][1]["text"], "began step 2, attempt 1");
  EXPECT_EQ(last["before_the_failure"], true);
  EXPECT_EQ(data["completeness"]["whole"], true);
  EXPECT_EQ(data["settings"]["SPILLWAY_LIMIT"], "1GiB");
}

// A program that marks no steps: its optimizers are heard, and the records of most steps may be overwritten.
TEST_F(Report, SaysHowFarTheOptimizersWereWhereNoStepIsMarked) {
  Story story(path());
  fail_request(story, 1, 500 * kMiB, 400 * kMiB, 200 * kMiB);
  story.outcome(1, Outcome::kGranted, 200 * kMiB, 900);
  story.optimizer_step(41);
  story.optimizer_step(42);
  fail_request(story, 2, 500 * kMiB, 400 * kMiB, 200 * kMiB);
  story.oom_step(2, 42);
  story.outcome(2, Outcome::kGranted, 200 * kMiB, 900);
  story.optimizer_step(50);
  const std::string text = report();
  EXPECT_THAT(text, HasSubstr("  when      after optimizer step 42 began, phase unknown\n"));
  EXPECT_THAT(text, HasSubstr("  50 optimizer steps began; "));
  EXPECT_THAT(text, HasSubstr("         1         ?  "));
  EXPECT_THAT(text, HasSubstr("         2  after 42  "));
  EXPECT_THAT(report({"--incident", "1"}), HasSubstr("  when      step unknown, phase unknown\n"));
  const auto data = nlohmann::json::parse(report({"--json"}));
  EXPECT_EQ(data["incidents"][0]["optimizer_steps"], 0);
  EXPECT_EQ(data["incidents"][1]["optimizer_steps"], 42);
  EXPECT_EQ(data["run"]["optimizer_steps"], 50);
}

TEST_F(Report, SaysWhichStreamPendingFreesWaitFor) {
  Story story(path());
  for (uint64_t i = 0; i < 3; ++i) story.free_later(0x7f0000200000 + i * 0x800000, 8 * kMiB, 0xAB);
  story.free(0x7f0000200000, 8 * kMiB);  // the first has waited
  story.free_later(0x7f0080000000, 4 * kMiB, 0);
  fail_request(story, 1, 500 * kMiB, 400 * kMiB, 200 * kMiB);
  const std::string text = report();
  EXPECT_THAT(text, HasSubstr("  pending: 16.00 MiB in 2 blocks wait for work of stream 0xab\n"));
  EXPECT_THAT(text, HasSubstr("  pending: 4.00 MiB in 1 block waits for work of stream 0\n"));
  const auto data = nlohmann::json::parse(report({"--json"}));
  EXPECT_EQ(data["incidents"][0]["pending_frees"][0]["bytes"], 16 * kMiB);
}

// As in the equation: what lies in another tier takes nothing of the card.
TEST_F(Report, CountsOfPendingFreesWhatIsOnTheCard) {
  constexpr uint64_t kBlock = 0x7f0000200000, kOther = 0x7f0001000000, kDevice = 0, kHost = 2;
  Story story(path());
  story.move(kBlock, 8 * kMiB, kHost);
  story.move(kBlock + 4 * kMiB, 2 * kMiB, kDevice);
  story.move(kBlock + 2 * kMiB, 2 * kMiB, kDevice, /*result=*/2);  // it stayed where it was
  story.free_later(kBlock, 8 * kMiB, 0xAB);
  story.move(kOther, 4 * kMiB, kHost);
  story.free_later(kOther, 4 * kMiB, 0xAC);
  fail_request(story, 1, 500 * kMiB, 400 * kMiB, 200 * kMiB);
  EXPECT_THAT(report(), HasSubstr("  pending: 2.00 MiB in 1 block waits for work of stream 0xab\n"));
  EXPECT_THAT(report(), Not(HasSubstr("0xac")));
  story.free(kOther, 4 * kMiB);
  story.free_later(kOther, 4 * kMiB, 0xAC);  // another block, at the same place
  fail_request(story, 2, 500 * kMiB, 400 * kMiB, 200 * kMiB);
  EXPECT_THAT(report(), HasSubstr("  pending: 4.00 MiB in 1 block waits for work of stream 0xac\n"));
}

TEST_F(Report, ShowsWhatHappenedBeforeTheFailureAndNotAfterIt) {
  Story story(path());
  story.phase("forward");
  for (uint64_t i = 0; i < 12; ++i) {
    story.allocate(0x7f0000200000 + i * 0x400000, 3 * kMiB, 4 * kMiB);
    story.place(0x7f0000200000 + i * 0x400000, "/home/me/model.py:7 forward");
  }
  fail_request(story, 1, 500 * kMiB, 400 * kMiB, 200 * kMiB);
  story.outcome(1, Outcome::kGiveUp, 0, 900);
  for (uint64_t i = 0; i < 12; ++i) story.free(0x7f0000200000 + i * 0x400000, 4 * kMiB);
  const std::string text = report();
  EXPECT_THAT(text, HasSubstr("12 × allocated 3.00 MiB each, 36.00 MiB in all  model.py:7 forward\n"));
  EXPECT_THAT(text, HasSubstr("12 events came after it"));
  EXPECT_THAT(text, Not(HasSubstr("freed 12 blocks")));
}

// The sources are at hand, or are not; a report of a stranger's file shows no other file.
TEST_F(Report, ShowsWhatStandsInTheLinesThatItNames) {
  const std::string source = (folder() / "model.py").string(), other = (folder() / "secrets.txt").string();
  std::ofstream(source) << "def forward(x):\n    return x * 2\x1b[31m\n";
  std::ofstream(other) << "one\ntwo\n";
  {
    Story story(path());
    story.oom(1, 8 * kMiB, 8 * kMiB, kMiB);
    story.equation(1, {{Term::kLimit, 128 * kMiB}, {Term::kLive, 100 * kMiB}});
    story.holder(1, source + ":2 forward", 60 * kMiB, 2);
    story.holder(1, other + ":2 forward", 20 * kMiB, 2);
    story.holder(1, source + ":9 forward", 10 * kMiB, 2);
    story.outcome(1, Outcome::kGiveUp, 0, 1);
  }
  EXPECT_THAT(run({"report", path()}).out,
              HasSubstr("\nThose lines\n  model.py:2 forward  return x * 2 [31m\n\nWhat was tried"));
  std::filesystem::last_write_time(source,
                                   std::filesystem::file_time_type::clock::now() + std::chrono::hours(1));
  EXPECT_THAT(run({"report", path()}).out, testing::Not(HasSubstr("Those lines"))) << "it has changed since";
}

TEST_F(Report, SourceLinesAreDataAndNoMarkupOfThePage) {
  const std::string source = (folder() / "model.py").string();
  std::ofstream(source) << "'</script><script>window.hit = 1</script>'; x = torch.empty(9)\n";
  {
    Story story(path());
    story.oom(1, 8 * kMiB, 8 * kMiB, kMiB);
    story.equation(1, {{Term::kLimit, 128 * kMiB}, {Term::kLive, 100 * kMiB}});
    story.holder(1, source + ":1 forward", 60 * kMiB, 2);
    story.outcome(1, Outcome::kGiveUp, 0, 1);
  }
  const auto data = nlohmann::json::parse(run({"report", path(), "--json"}).out);
  ASSERT_EQ(data["source_lines"].size(), 1u);
  EXPECT_EQ(data["source_lines"][0]["place"], "model.py:1 forward");
  EXPECT_EQ(data["source_lines"][0]["line"],
            "'</script><script>window.hit = 1</script>'; x = torch.empty(9)");
  ASSERT_EQ(run({"report", path(), "--html", "page.html"}).code, 0);
  std::ifstream file(folder() / "page.html", std::ios::binary);
  const std::string page{std::istreambuf_iterator<char>(file), {}};
  EXPECT_THAT(page, Not(HasSubstr("<script>window.hit")));
  EXPECT_THAT(page, HasSubstr("x = torch.empty(9)"));
}

TEST_F(Report, SaysWhoAskedAndWhoHeldIt) {
  {
    Story story(path());
    story.oom(1, 8 * kMiB, 8 * kMiB, kMiB);
    story.equation(1, {{Term::kLimit, 128 * kMiB}, {Term::kLive, 100 * kMiB}});
    story.holder(1, "/home/me/model.py:7 forward\n/home/me/train.py:3 main", 20 * kMiB, 2);
    story.holder(1, "/home/me/model.py:7 forward\n/home/me/train.py:9 main", 40 * kMiB, 1);
    story.holder(1, "/home/me/model.py:7 forward\n/usr/lib/python3/x.py:1 y\n/home/me/train.py:3 main",
                 5 * kMiB, 1);
    story.holder(1, "backward of MulBackward0", 30 * kMiB, 3);
    story.asker(1, "/env/site-packages/torch/nn/modules/linear.py:130 forward\n/home/me/train.py:3 main");
    story.outcome(1, Outcome::kGiveUp, 0, 1);
  }
  const Ran text = run({"report", path()});
  EXPECT_THAT(text.out, HasSubstr("  by        train.py:3 main\n"));
  EXPECT_THAT(text.out, HasSubstr("  40.00 MiB    40%       1  model.py:7 forward  from train.py:9 main\n"
                                  "  30.00 MiB    30%       3  backward of MulBackward0\n"
                                  "  25.00 MiB    25%       3  model.py:7 forward  from train.py:3 main\n"));
  const auto incident = nlohmann::json::parse(run({"report", "--json", path()}).out)["incidents"][0];
  EXPECT_EQ(incident["holders"][0]["bytes"], 40 * kMiB) << "who called it tells training from evaluation";
  EXPECT_EQ(incident["asked_by"]["where"], "train.py:3 main");
}

TEST_F(Report, StacksThatAreNoneAreShownAsTheyAre) {
  {
    Story story(path());
    story.oom(1, kMiB, kMiB, kMiB);
    for (const char* text :
         {"", "\n", ":", " ", "a:b c", ":1 f", "x.py:99999999999999999999999 f", "x.py:7 "})
      story.holder(1, text, kMiB, 1);
    story.outcome(1, Outcome::kGiveUp, 0, 1);
  }
  const Ran text = run({"report", path()});
  EXPECT_EQ(text.code, 0) << text.err;
  EXPECT_THAT(text.out, HasSubstr("x.py:99999999999999999999999 f"));
  EXPECT_EQ(run({"report", "--json", path()}).code, 0);
}

TEST_F(Report, SurvivesNamesThatAreNoText) {
  Story story(path());
  story.phase("\xff\xfe\x01");
  EXPECT_TRUE(nlohmann::json::accept(report({"--json"})));
  Record unknown = story.event(static_cast<Kind>(9999));
  story.trace().write(unknown);
  EXPECT_THAT(report(), HasSubstr("kind 9999"));
}

TEST_F(Report, RefusesWhatItCannotRead) {
  std::ofstream(folder() / "text") << "no trace";
  for (const std::string file : {"text", "absent", ".", "/dev/null"}) {
    const Ran ran = run({"report", file});
    EXPECT_EQ(ran.code, 3) << file;
    EXPECT_THAT(ran.err, HasSubstr("'" + file + "' "));
    EXPECT_EQ(ran.out, "");
  }
  const Ran two = run({"report", "text", "absent"});  // of ranks, then
  EXPECT_EQ(two.code, 3);
  EXPECT_THAT(two.err, HasSubstr("'text' is no report of spillway-train"));
}

TEST_F(Report, ExplainsWrongUsage) {
  for (const std::vector<std::string>& words :
       std::vector<std::vector<std::string>>{{"report"},
                                             {"report", "a", "--events"},
                                             {"report", "a", "--events", "-1"},
                                             {"report", "a", "--events", "x"},
                                             {"report", "--jsno", "a"}}) {
    const Ran ran = run(words);
    EXPECT_EQ(ran.code, 2) << words.back();
    EXPECT_THAT(ran.err, HasSubstr("spillway: "));
  }
}

}  // namespace
}  // namespace spillway::tools
