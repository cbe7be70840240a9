// The rules behind `spillway rehearse`: the verdict, the bisection, and what is read of damaged results.
#include <gmock/gmock.h>

#include <filesystem>
#include <fstream>

#include "tools/spillway/rehearse/judge/find.h"
#include "tools/spillway/rehearse/judge/outcome.h"
#include "tools/spillway/rehearse/judge/places.h"
#include "tools/spillway/rehearse/report/report_text.h"
#include "tools/spillway/rehearse/run/baseline.h"

namespace spillway::tools {
namespace {

using ::testing::ContainsRegex;
using ::testing::HasSubstr;

CardView card_of(uint64_t capacity, uint64_t peak) {
  CardView card;
  card.capacity = capacity;
  card.peak = peak;
  return card;
}

Rehearsal ended(int code, uint64_t failures, const char* uncaught = "", bool out_of_memory = false) {
  Observation process;
  process.has_probe = true;
  process.devices[0].card = card_of(100, 10);
  process.failure_count = failures;
  process.uncaught_type = uncaught;
  process.uncaught_out_of_memory = out_of_memory;
  Rehearsal rehearsal;
  rehearsal.exit_code = code;
  rehearsal.processes.push_back(process);
  return rehearsal;
}

TEST(RehearseVerdict, FollowsFromTheEndAndTheFailures) {
  EXPECT_EQ(decide(ended(0, 0)), Fit::kFits);
  EXPECT_EQ(decide(ended(0, 2)), Fit::kWentOn);
  EXPECT_EQ(decide(ended(1, 1, "torch.OutOfMemoryError", true)), Fit::kDoesNotFit);
  EXPECT_EQ(decide(ended(1, 1)), Fit::kDoesNotFit) << "it ended after a failure and did not say why";
  EXPECT_EQ(decide(ended(1, 1, "builtins.ValueError")), Fit::kProgramFailed)
      << "it had dealt with the failure";
  EXPECT_EQ(decide(ended(7, 0)), Fit::kProgramFailed);
}

Tried tried(int64_t value, Fit fit) {
  Tried one;
  one.value = value;
  one.run.fit = fit;
  return one;
}

Found find_where(int64_t low, int64_t high, const std::function<Fit(int64_t)>& fit) {
  return find_largest({"n", low, high}, [&](int64_t value) { return tried(value, fit(value)); });
}

TEST(RehearseFind, FindsEveryBoundary) {
  for (int64_t boundary = -1; boundary <= 21; ++boundary) {
    const Found found =
        find_where(0, 20, [&](int64_t n) { return n <= boundary ? Fit::kFits : Fit::kDoesNotFit; });
    if (boundary < 0)
      EXPECT_FALSE(found.largest);
    else
      EXPECT_EQ(found.largest, std::min<int64_t>(boundary, 20));
    EXPECT_LE(found.tried.size(), 7U);
  }
}

// A program that takes a fixed part and so much for each, in segments.
Found find_on(uint64_t capacity, const std::string& range) {
  std::string error;
  const auto search = parse_search(range, &error);
  if (!search) throw std::invalid_argument(error);
  return find_largest(*search, [&](int64_t n) {
    const uint64_t peak = (3000 + 43 * uint64_t(n)) / 20 * 20;
    Tried one = tried(n, peak <= capacity ? Fit::kFits : Fit::kDoesNotFit);
    one.run.need.peak = std::min(peak, capacity);
    one.run.need.capacity = capacity;
    return one;
  });
}

TEST(RehearseFind, NeedsFewRunsWhereTheNeedGrowsEvenly) {
  for (uint64_t capacity = 3100; capacity < 60'000; capacity += 177) {
    const Found found = find_on(capacity, "n=1..1024");
    const auto fits = [&](int64_t n) { return (3000 + 43 * uint64_t(n)) / 20 * 20 <= capacity; };
    ASSERT_TRUE(found.largest);
    EXPECT_TRUE(fits(*found.largest)) << capacity;
    EXPECT_TRUE(*found.largest == 1024 || !fits(*found.largest + 1)) << capacity;
    EXPECT_LE(found.tried.size(), 9U) << capacity;
    EXPECT_EQ(contradiction(found.tried), "");
  }
  EXPECT_LE(find_on(24'000, "n=1..1024").tried.size(), 6U) << "bisection takes 12";
}

TEST(RehearseFind, GoesByMultiples) {
  const Found found = find_on(24'000, "n=8..1024:8");
  EXPECT_EQ(found.largest, 488) << "488 of 488.8";
  for (const Tried& one : found.tried) EXPECT_EQ(one.value % 8, 0);
  std::string error;
  EXPECT_EQ(parse_search("n=3..10:3", &error)->high, 9);
  EXPECT_EQ(parse_search("n=-9223372036854775808..9223372036854775807:9223372036854775807", &error)->high,
            9223372036854775806);
}

TEST(RehearseFind, StopsAtAProgramThatFailsAndSeesContradictions) {
  const Found failed = find_where(1, 9, [](int64_t n) { return n < 9 ? Fit::kFits : Fit::kProgramFailed; });
  EXPECT_TRUE(failed.stopped);
  EXPECT_FALSE(failed.largest) << "a run that failed for another reason says nothing of memory";
  EXPECT_NE(contradiction({tried(2, Fit::kDoesNotFit), tried(3, Fit::kFits)}), "");
  EXPECT_EQ(contradiction({tried(3, Fit::kDoesNotFit), tried(2, Fit::kFits)}), "");
  Tried below = tried(543, Fit::kFits), above = tried(547, Fit::kFits);
  below.run.need.peak = 23'470;
  above.run.need.peak = 23'465;
  EXPECT_EQ(contradiction({below, above}), "") << "a segment more or less by chance";
  above.run.need.peak = 20'000;
  EXPECT_NE(contradiction({below, above}), "");
  std::string error;
  for (const char* wrong : {"", "n", "n=1", "n=1..", "n=..4", "=1..4", "n=4..1", "n=1..4x",
                            "n=1..99999999999999999999", "n=1..4:", "n=1..4:0", "n=1..4:-1", "n=1:2..4"})
    EXPECT_FALSE(parse_search(wrong, &error)) << wrong;
  EXPECT_TRUE(parse_search("batch=-2..64", &error));
}

TEST(RehearseResults, DamagedFilesAreNamedAndPassedOver) {
  std::string folder = (std::filesystem::temp_directory_path() / "spillway-rules-XXXXXX").string();
  ASSERT_NE(::mkdtemp(folder.data()), nullptr);
  const std::vector<std::string> texts = {"",
                                          "{",
                                          "[]",
                                          R"({"spillway_rehearsal":1})",
                                          R"({"spillway_rehearsal":2})",
                                          R"({"devices":[{"ordinal":"x"}]})"};
  for (size_t i = 0; i < texts.size(); ++i) {
    std::ofstream(folder + "/probe-" + std::to_string(i + 1) + ".json") << texts[i];
    std::ofstream(folder + "/simulator-" + std::to_string(i + 1) + ".json") << texts[i];
  }
  std::ofstream(folder + "/probe-x.json") << "no result of ours";
  std::vector<std::string> damaged;
  EXPECT_TRUE(read_observations(folder, &damaged).empty());
  EXPECT_EQ(damaged.size(), 2 * texts.size());
  std::filesystem::remove_all(folder);
}

TEST(RehearseResults, OfADamagedReportNothingIsBelieved) {
  std::string folder = (std::filesystem::temp_directory_path() / "spillway-rules-XXXXXX").string();
  ASSERT_NE(::mkdtemp(folder.data()), nullptr);
  std::ofstream(folder + "/probe-7.json") << R"({"spillway_rehearsal":1,"rank":5})";
  std::ofstream(folder + "/simulator-7.json")
      << R"({"values":"zeros","host_reads":[],"assumed_sizes":0,"uncomputed":{},"other_runtime":"","devices":[
    {"ordinal":0,"card":null,"capacity_bytes":100,"peak_bytes":50,"allocator_at_peak_bytes":0,
     "outside_peak_bytes":50,"physical":0,"machine_peak_bytes":50,"refused_requests":0,"refused_parts":{},
     "first_refusal":null,"modelled_at_peak":{}}]})";
  std::vector<std::string> damaged;
  const std::vector<Observation> read = read_observations(folder, &damaged);
  EXPECT_EQ(damaged.size(), 1u);
  ASSERT_EQ(read.size(), 1u);
  EXPECT_EQ(read[0].peak_of(0), 50u);
  EXPECT_FALSE(read[0].has_probe);
  EXPECT_EQ(read[0].rank, std::nullopt);
  std::filesystem::remove_all(folder);
}

constexpr uint64_t kGiB = uint64_t{1} << 30;

// A process of `rank` that sees card `physical` as its first.
Observation on_card(int64_t rank, int physical, uint64_t peak, uint64_t machine_peak) {
  Observation process;
  process.pid = 100 + rank;
  process.rank = rank;
  process.has_probe = process.complete = true;
  DeviceObservation& device = process.devices[0];
  device.allocator = AllocatorView{};
  device.allocator->events = 1;
  device.allocator->peak_allocated = peak / 2;
  device.allocator->peak_reserved = peak / 2;
  device.card = CardView{};
  device.card->physical = physical;
  device.card->capacity = 16 * kGiB;
  device.card->peak = peak;
  device.card->machine_peak = machine_peak;
  return process;
}

TEST(RehearseCards, ProcessesOnOneCardShareItsRoom) {
  Rehearsal rehearsal;
  rehearsal.processes = {on_card(0, 0, 6 * kGiB, 6 * kGiB), on_card(1, 0, 6 * kGiB, 12 * kGiB),
                         on_card(2, 1, 7 * kGiB, 7 * kGiB)};
  const std::vector<CardNeed> cards = needs_of(rehearsal);
  ASSERT_EQ(cards.size(), 2U);
  EXPECT_EQ(cards[0].processes, 2U);
  EXPECT_EQ(cards[0].need.peak, 12 * kGiB);
  EXPECT_EQ(cards[0].need.reserved, 6 * kGiB);
  EXPECT_EQ(largest_need(rehearsal).peak, 12 * kGiB);
  const auto baseline = baseline_of({}, rehearsal).devices;
  ASSERT_EQ(baseline.size(), 2U);
  EXPECT_EQ(baseline.at("GPU 0").peak, 12 * kGiB);
  EXPECT_EQ(baseline.at("GPU 1").peak, 7 * kGiB);
  const std::string text = report_text({}, rehearsal, {});
  EXPECT_THAT(text, ContainsRegex("GPU 0, all 2 processes .*12.00 GiB +4.00 GiB \\(25%\\)"));
  EXPECT_THAT(text, HasSubstr("rank 2 GPU 1 (its cuda:0)"));
}

TEST(RehearseCards, OfAProcessThatWasStoppedTheFiguresAddUpAndSayOfWhenTheyAre) {
  Rehearsal rehearsal;
  rehearsal.processes = {on_card(0, 0, 6 * kGiB, 6 * kGiB)};
  DeviceObservation& device = rehearsal.processes[0].devices[0];
  device.allocator->peak_allocated = 4 * kGiB;
  device.allocator->peak_reserved = 5 * kGiB - kGiB / 2;  // half a GiB before its end
  device.card->allocator_at_peak = 5 * kGiB;
  rehearsal.processes[0].complete = false;
  rehearsal.stopped_by = 15;
  rehearsal.exit_code = 143;
  const Need need = largest_need(rehearsal);
  EXPECT_EQ(need.reserved + need.outside, need.peak);
  EXPECT_THAT(
      report_text({}, rehearsal, {}),
      HasSubstr("process 100 ended at once: allocated and the places are as of a second before its end "
                "or less; reserved, outside PyTorch and the whole card are as of its end\n"));
  rehearsal.processes[0].complete = true;
  EXPECT_THAT(report_text({}, rehearsal, {}), ::testing::Not(HasSubstr("ended at once")));
}

TEST(RehearsePlaces, TheProbesOwnFramesAreNotTheProgram) {
  const Frame probe{"maybe_step", "spillway/_rehearsal.py", 115}, program{"main", "/home/user/train.py", 9};
  EXPECT_EQ(place_text({"", {{"_init_group", "/x/site-packages/torch/optim/adam.py", 178}, probe, program}}),
            "torch/optim/adam.py:178 _init_group  from train.py:9 main");
  EXPECT_EQ(place_text({"", {probe, program}}), "train.py:9 main");
}

TEST(RehearseBaseline, NeitherTheCardsPeakNorWhatIsAllocatedMayGrowBeyondTheTolerance) {
  const DeviceBaseline before{1000, 500, {{"model.py forward", 400}}};
  const auto judged = [&](uint64_t peak, uint64_t allocated) {
    return within_baseline("GPU 0", {peak, allocated, {{"model.py forward", 410}}}, &before, {0.02, 0});
  };
  EXPECT_EQ(judged(1020, 510).judged, Judged::kPassed);
  EXPECT_EQ(judged(1021, 500).judged, Judged::kFailed);
  const Finding allocated = judged(1000, 511);
  EXPECT_EQ(allocated.judged, Judged::kFailed);
  ASSERT_EQ(allocated.grown.size(), 1u);
  EXPECT_EQ(allocated.grown[0].after - allocated.grown[0].before, 10u);
}

TEST(RehearseBaseline, KnowsItsSettingsAndNamesWhatDiffers) {
  Rehearsal rehearsal;
  rehearsal.processes = {on_card(0, 0, kGiB, kGiB)};
  rehearsal.processes[0].allocator = "native";
  rehearsal.card = "t4-16gb";
  rehearsal.cards[0].capacity = rehearsal.cards[1].capacity = 16 * kGiB;
  RunOptions options;
  options.steps = 3;
  const std::string path = testing::TempDir() + "spillway-baseline-" + std::to_string(::getpid()) + ".json";
  std::ofstream(path) << baseline_text(baseline_of(options, rehearsal));
  std::string error;
  const auto before = read_baseline(path, &error);
  ASSERT_TRUE(before) << error;
  EXPECT_EQ(differences(before->settings, settings_of(options, rehearsal)), "");
  EXPECT_EQ(differences(before->settings, {}), "") << "what is not known differs from nothing";

  options.steps = 0;
  rehearsal.processes[0].expandable_segments = true;
  rehearsal.processes[0].values = "random";
  rehearsal.card = "";
  rehearsal.cards = {{0, {.capacity = 8 * kGiB}}};
  EXPECT_EQ(differences(before->settings, settings_of(options, rehearsal)),
            "card: t4-16gb there, none here; memory of a card: 16.00 GiB (17179869184) there, 8.00 GiB "
            "(8589934592) here; cards: 2 there, 1 here; allocator: native there, expandable here; values: "
            "zeros there, random here; steps: 3 there, all here");

  std::ofstream(path) << R"({"spillway_baseline": 1, "devices": {}})";
  EXPECT_FALSE(read_baseline(path, &error));
  EXPECT_THAT(error, HasSubstr("its version is 1, and this is for version 2"));
  for (const auto& [text, why] : {std::pair{"no json", "(it is not JSON)"},
                                  {"", "(it is not JSON)"},
                                  {"[]", "(it is not what check writes)"},
                                  {R"({"spillway_baseline": "2"})", "(it is not what check writes)"}}) {
    std::ofstream(path) << text;
    EXPECT_FALSE(read_baseline(path, &error));
    EXPECT_THAT(error, HasSubstr(why));
  }
  EXPECT_THAT(error, HasSubstr("--update-baseline"));
  std::filesystem::remove(path);
}

MachineRecord machine_with(int64_t pid, uint64_t peak) {
  MachineRecord machine;
  machine.cards[0] = {16 * kGiB, peak, 0, 0, 0};
  DeviceObservation device;
  device.card = CardView{};
  device.card->capacity = 16 * kGiB;
  device.card->peak = peak;
  machine.processes.push_back({pid, 1, {device}});
  return machine;
}

TEST(RehearseCards, AProcessWithoutAReportCounts) {
  Rehearsal rehearsal;
  rehearsal.processes = {on_card(0, 0, kGiB, kGiB)};
  MachineRecord machine = machine_with(7, 3 * kGiB);
  add_unreported(machine, {}, &rehearsal.processes);
  rehearsal.cards = machine.cards;
  ASSERT_EQ(rehearsal.processes.size(), 2U);
  EXPECT_EQ(largest_need(rehearsal).peak, 3 * kGiB);
  EXPECT_EQ(largest_need(rehearsal).capacity, 16 * kGiB);
  EXPECT_THAT(report_text({}, rehearsal, {}), HasSubstr("process 7 left no report: its memory is counted"));
  machine.cards[0].gone = 2;
  machine.cards[0].gone_peak = 2 * kGiB;
  rehearsal.processes = {on_card(0, 0, kGiB, kGiB)};  // one of the two that the file has no place for
  add_unreported(machine, {}, &rehearsal.processes);
  ASSERT_EQ(rehearsal.processes.size(), 3U);
  EXPECT_EQ(rehearsal.processes[1].unreported, 1U);
  EXPECT_EQ(rehearsal.processes[1].peak_of(0), 2 * kGiB);
}

TEST(RehearseCards, ARecordAddsToAReportAndLeavesOutWhatWasThereBefore) {
  std::vector<Observation> processes = {on_card(0, 0, kGiB, kGiB)};
  processes[0].devices[0].card.reset();  // it was killed with only its probe's result written
  add_unreported(machine_with(100, 3 * kGiB), {}, &processes);
  ASSERT_EQ(processes.size(), 1U);
  EXPECT_EQ(processes[0].unreported, 0U);
  EXPECT_EQ(processes[0].peak_of(0), 3 * kGiB);
  const MachineRecord old = machine_with(7, kGiB);
  add_unreported(old, old, &processes);
  EXPECT_EQ(processes.size(), 1U);
}

}  // namespace
}  // namespace spillway::tools
