// `spillway rehearse` on real PyTorch programs.
#include <gmock/gmock.h>
#include <sys/stat.h>

#include <nlohmann/json.hpp>
#include <thread>

#include "tests/tools/support.h"

namespace spillway::tools {
namespace {

using ::testing::ContainsRegex;
using ::testing::HasSubstr;
using ::testing::Not;

class RehearsePrograms : public CommandTest {
 protected:
  using Words = std::vector<std::string>;
  Ran rehearse(Words flags, const Words& program) const {
    Words words{"rehearse"};
    words.insert(words.end(), flags.begin(), flags.end());
    words.insert(words.end(), {"--", SPILLWAY_PYTHON, SPILLWAY_PROGRAMS + program[0]});
    words.insert(words.end(), program.begin() + 1, program.end());
    return run(words);
  }
};

TEST_F(RehearsePrograms, SaysThatItFitsAndWhatHoldsThePeak) {
  const Ran ran = rehearse({"--capacity", "1GiB"}, {"holds.py", "5"});
  EXPECT_EQ(ran.code, 0) << ran.err;
  EXPECT_THAT(ran.out, HasSubstr("fits: "));
  EXPECT_THAT(ran.out, HasSubstr("320.00 MiB   100%       5  holds.py:15 <module>"));
  EXPECT_THAT(ran.out, HasSubstr("unconditional"));
}

TEST_F(RehearsePrograms, NamingStacksImportsNothing) {
  // By itself: the interpreter that test programs are forked from has imported Inductor.
  const Ran ran = run({"rehearse", "--once", "--capacity", "1GiB", "--", "env", "SPILLWAY_TEST_COLD=1",
                       SPILLWAY_PYTHON, SPILLWAY_PROGRAMS + std::string("waits.py")});
  EXPECT_EQ(ran.code, 0) << ran.err;
  EXPECT_THAT(ran.out, HasSubstr("torch._inductor imported: False"));
  EXPECT_THAT(ran.out, HasSubstr("waits.py:"));
}

TEST_F(RehearsePrograms, SaysThatItDoesNotFitAndWhatItTakes) {
  const Ran ran = rehearse({"--capacity", "300MiB"}, {"holds.py", "5"});
  EXPECT_EQ(ran.code, 20) << ran.err;
  EXPECT_THAT(ran.out, HasSubstr("does not fit: "));
  EXPECT_THAT(ran.out,
              HasSubstr("asked 64.00 MiB on GPU 0 before any optimizer step, at holds.py:15 <module>"));
  EXPECT_THAT(ran.out, HasSubstr("torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 64.00 MiB"));
  EXPECT_THAT(ran.out, HasSubstr("with ample memory it takes 320.00 MiB of a card"));
  // PyTorch for CUDA 12 has kernels for a V100.
  EXPECT_THAT(ran.out,
              ContainsRegex("\\(not run\\): t4-16gb, (v100-16gb, )?l4-24gb, a10g-24gb, rtx3090-24gb, "
                            "rtx4090-24gb, rtx5090-32gb, (v100-32gb, )?a100-40gb, "))
      << "in order of capacity, and none that this PyTorch has no kernels for";
}

nlohmann::json data_of(const std::filesystem::path& page) {
  std::ifstream file(page, std::ios::binary);
  const std::string text{std::istreambuf_iterator<char>(file), {}}, mark = "id=\"data\">";
  const size_t start = text.find(mark) + mark.size();
  return nlohmann::json::parse(text.substr(start, text.find("</script>", start) - start));
}

TEST_F(RehearsePrograms, WritesAPageOfWhatFits) {
  const Ran ran = rehearse({"--gpu", "t4-16gb", "--html", "page.html"}, {"holds.py", "5"});
  EXPECT_EQ(ran.code, 0) << ran.err;
  const auto data = data_of(folder() / "page.html");
  EXPECT_EQ(data.at("rehearsal").at("verdict").at("head"), "FITS");
  EXPECT_THAT(data.at("rehearsal").at("verdict").at("text").get<std::string>(), HasSubstr(" are left."));
  EXPECT_EQ(data.at("rehearsal").at("equation").at("parts").at(0).at("bytes"), uint64_t{5} * (64 << 20));
  EXPECT_THAT(data.at("rehearsal").at("answers").at(0).at("text").get<std::string>(), HasSubstr("a100-40gb"));
  EXPECT_EQ(data.at("report").at("peak").at("in_use_bytes"), uint64_t{5} * (64 << 20));
  EXPECT_EQ(data.at("history").at("blocks").at("count"), 5);
  EXPECT_THAT(data.at("report").at("peak").at("holders").dump(), HasSubstr("holds.py:15 <module>"));
  EXPECT_THAT(ran.err, Not(HasSubstr("page for a browser")));
}

TEST_F(RehearsePrograms, LeavesAPageOfAFailureUnasked) {
  const Ran ran = rehearse({"--capacity", "300MiB"}, {"holds.py", "5"});
  EXPECT_EQ(ran.code, 20) << ran.err;
  const std::string says = "spillway: why it ran out, as a page for a browser: ";
  const size_t at = ran.err.find(says);
  ASSERT_NE(at, std::string::npos) << ran.err;
  const std::filesystem::path page =
      ran.err.substr(at + says.size(), ran.err.find('\n', at) - at - says.size());
  EXPECT_EQ(page.parent_path(), folder());
  EXPECT_THAT(page.filename().string(), ContainsRegex("^spillway-[0-9]+.html$"));
  const auto data = data_of(page);
  EXPECT_EQ(data.at("rehearsal").at("verdict").at("head"), "DOES NOT FIT");
  EXPECT_EQ(data.at("rehearsal").at("verdict").at("cause"), "capacity");
  EXPECT_EQ(data.at("report").at("failure").at("asked_bytes"), 64 << 20);
  EXPECT_EQ(data.at("report").at("memory").at("in_use_bytes"), uint64_t{4} * (64 << 20));
  const std::string answers = data.at("rehearsal").at("answers").dump();
  EXPECT_THAT(answers, HasSubstr("ample memory"));
  EXPECT_THAT(answers, HasSubstr("t4-16gb"));
  const Ran traced =
      rehearse({"--capacity", "300MiB", "--once", "--trace", "run.stream"}, {"holds.py", "5", "catch"});
  EXPECT_EQ(traced.code, 21) << traced.err;
  EXPECT_TRUE(std::filesystem::exists(folder() / "run.stream.html")) << "beside what was asked for";
}

TEST_F(RehearsePrograms, OfALimitOfTheProcessItSaysWhatToRaise) {
  const Ran ran = rehearse({"--gpu", "t4-16gb", "--json", "limit.json"}, {"limited.py", "0.1"});
  EXPECT_EQ(ran.code, 20) << ran.err;
  EXPECT_THAT(ran.out, HasSubstr("the process has a limit of its own: 1.46 GiB of the card's 14.57 GiB, by "
                                 "torch.cuda.set_per_process_memory_fraction(0.1)"));
  EXPECT_THAT(ran.out, HasSubstr("raise the fraction: the card is not what is too small"));
  EXPECT_THAT(ran.out, HasSubstr("on the same card with torch.cuda.set_per_process_memory_fraction(0.13): "
                                 "enough by memory (not run)\n"));
  EXPECT_THAT(ran.out, HasSubstr("cards of which torch.cuda.set_per_process_memory_fraction(0.1) allows that "
                                 "much (not run): l4-24gb"));
  EXPECT_THAT(ran.out, Not(HasSubstr("t4-16gb,")));
  const Ran enough = rehearse({"--gpu", "t4-16gb"}, {"limited.py", "0.13"});
  EXPECT_EQ(enough.code, 0) << enough.out;
  const auto report = nlohmann::json::parse(std::ifstream(folder() / "limit.json"));
  EXPECT_EQ(report.at("cause").at("name"), "limit");
  EXPECT_NEAR(report.at("cause").at("own_limit").at("fraction").get<double>(), 0.1, 1e-6);
  EXPECT_EQ(report.at("fraction_enough"), 0.13);
  EXPECT_EQ(report.at("cards_with_enough_memory").at(0), "l4-24gb");
}

TEST_F(RehearsePrograms, OfALimitInBytesItOffersNoCards) {
  ::setenv("SPILLWAY_LIMIT", "128MiB", 1);
  const Ran ran = rehearse({"--gpu", "t4-16gb", "--allocator", "spillway"}, {"holds.py", "5"});
  ::unsetenv("SPILLWAY_LIMIT");
  EXPECT_EQ(ran.code, 20) << ran.err;
  EXPECT_THAT(ran.out, HasSubstr("the process has a limit of its own in bytes, such as SPILLWAY_LIMIT\n"));
  EXPECT_THAT(ran.out, HasSubstr("raise the limit: no card is large enough"));
  EXPECT_THAT(ran.out, Not(HasSubstr("what would have fitted")));
}

TEST_F(RehearsePrograms, OfALeakTextJsonAndPageSayTheSame) {
  const Ran ran = rehearse({"--capacity", "256MiB", "--json", "leak.json", "--html", "leak.html"},
                           {"../../deaths/programs/kept_losses.py"});
  EXPECT_EQ(ran.code, 20) << ran.err;
  const auto cause = nlohmann::json::parse(std::ifstream(folder() / "leak.json")).at("cause");
  EXPECT_EQ(cause.at("name"), "leak");
  EXPECT_EQ(cause.at("grows").at("where"), "kept_losses.py:10 <module>");
  EXPECT_GT(cause.at("grows").at("bytes"), 128 << 20);
  EXPECT_EQ(cause.at("grows").at("bytes_per_step"), 12 << 20);
  const auto text = cause.at("text").get<std::string>();
  EXPECT_THAT(
      text, ContainsRegex("MiB in [0-9]+ blocks of kept_losses.py:10 <module> .*were kept: 12.00 MiB more"));
  EXPECT_THAT(ran.out, HasSubstr("  leak: " + text +
                                 "\n  a larger card, a smaller batch, gradient "
                                 "checkpointing and memory of the host only delay a leak: "));
  EXPECT_THAT(ran.out, HasSubstr("with ample memory it takes "));
  for (const char* offer :
       {"cards with that much memory", "--mode replace", "torch.utils.checkpoint", "--find"})
    EXPECT_THAT(ran.out, Not(HasSubstr(offer)));
  const auto verdict = data_of(folder() / "leak.html").at("rehearsal").at("verdict");
  EXPECT_EQ(verdict.at("cause"), "leak");
  EXPECT_THAT(verdict.at("text").get<std::string>(), HasSubstr(text + ". A larger card, "));
}

TEST_F(RehearsePrograms, TriesWhatTheUserCanChange) {
  const Ran ran =
      rehearse({"--capacity", "600MiB", "--json", "offers.json"}, {"too_big.py", "--batch-size=16"});
  EXPECT_EQ(ran.code, 20) << ran.err;
  EXPECT_THAT(ran.out, HasSubstr("on the same card with --batch-size=2 in place of 16: fits, peak "))
      << ran.out;
  EXPECT_THAT(ran.out,
              ContainsRegex("under spillway run --mode replace .[0-9.]+ [GM]iB of host memory.: runs"));
  EXPECT_THAT(ran.out, ContainsRegex("not run\n  activations and all else are [0-9.]+ GiB of it: gradient"));
  const auto report = nlohmann::json::parse(std::ifstream(folder() / "offers.json"));
  EXPECT_EQ(report.at("further_runs").size(), 3U) << "ample memory, a batch that fits, moved to the host";
  for (const auto& file : std::filesystem::directory_iterator(folder()))
    EXPECT_NE(file.path().extension(), ".spill");
}

TEST_F(RehearsePrograms, TriesGradientCheckpointingInModelsOfTransformers) {
  const Ran ran = rehearse({"--capacity", "400MiB"}, {"too_big.py", "--transformers"});
  EXPECT_EQ(ran.code, 20) << ran.err;
  EXPECT_THAT(ran.out,
              HasSubstr("with gradient checkpointing (model.gradient_checkpointing_enable()): fits, peak "))
      << ran.out;
  EXPECT_THAT(ran.out, Not(HasSubstr("torch.utils.checkpoint")));
  EXPECT_THAT(ran.out, HasSubstr("the largest batch that fits: spillway rehearse --find batch=1..64"))
      << "the command names no batch";
}

TEST_F(RehearsePrograms, TellsOtherEndsApart) {
  const Ran caught = rehearse({"--capacity", "300MiB", "--once"}, {"holds.py", "5", "catch"});
  EXPECT_EQ(caught.code, 21) << caught.err;
  EXPECT_THAT(caught.out, HasSubstr("1 request failed, and the program went on"));
  EXPECT_THAT(caught.out, Not(HasSubstr("what would have fitted")));
  const Ran ended = rehearse({"--capacity", "1GiB"}, {"holds.py", "1", "exit"});
  EXPECT_EQ(ended.code, 7) << ended.err;
  EXPECT_THAT(ended.out,
              HasSubstr("the program ended with exit code 7, and not for lack of the card's memory"));
  const Ran raised = rehearse({"--capacity", "1GiB"}, {"holds.py", "1", "raise"});
  EXPECT_EQ(raised.code, 1) << raised.err;
  EXPECT_THAT(raised.out, HasSubstr("ValueError: not for lack of memory"));
}

TEST_F(RehearsePrograms, TellsWhatThePeakWasFor) {
  const Ran ran = rehearse({"--capacity", "1GiB", "--json", "kinds.json"}, {"kinds.py"});
  EXPECT_EQ(ran.code, 0) << ran.err;
  EXPECT_THAT(ran.out,
              HasSubstr("  parameters and buffers 7.00 MiB, gradients 2.00 MiB, optimizer state 4.00 MiB, "
                        "activations and all else "));
  const auto device = nlohmann::json::parse(std::ifstream(folder() / "kinds.json")).at("devices").at(0);
  const nlohmann::json expected = {
      {"parameters", 7 << 20}, {"gradients", 2 << 20}, {"optimizer_state", 4 << 20}};
  EXPECT_EQ(device.at("kinds_at_peak"), expected);
}

TEST_F(RehearsePrograms, NamesTheValuesThatTheVerdictDependsOn) {
  const Ran ran = rehearse({"--capacity", "1GiB", "--masks", "none"}, {"reads.py"});
  EXPECT_EQ(ran.code, 0) << ran.err;
  EXPECT_THAT(ran.out, HasSubstr("conditional on 5 values read from the device, 3 of which decide a "
                                 "shape, and on 1 copy to the host of at most 1 MiB"));
  EXPECT_THAT(ran.out, HasSubstr("3 ×  number reads.py:6 <module>"));
  EXPECT_THAT(ran.out, HasSubstr("1 ×  value  reads.py:9 <module>"));
  EXPECT_THAT(ran.out, HasSubstr("1 ×  shape  reads.py:11 <module>"));
  EXPECT_THAT(ran.out, HasSubstr("1 ×  copy   reads.py:14 <module>"));
}

TEST_F(RehearsePrograms, MasksThatNobodyComputedHoldEverywhere) {
  const Ran kept = rehearse({"--capacity", "2GiB"}, {"masks.py", "kept"});
  EXPECT_EQ(kept.code, 0) << kept.err;
  EXPECT_THAT(kept.out, HasSubstr("kept 26214400 26214400 torch.Size([26214400, 1])"));
  EXPECT_THAT(kept.out, HasSubstr("3 sizes were taken as the largest possible"));
  EXPECT_THAT(kept.out, HasSubstr("the verdict is unconditional"));
  const Ran none = rehearse({"--capacity", "2GiB", "--masks", "none"}, {"masks.py", "kept"});
  EXPECT_EQ(none.code, 0) << none.err;
  EXPECT_THAT(none.out, HasSubstr("kept 0 0 torch.Size([0, 1])"));
  EXPECT_THAT(none.out, HasSubstr("fits, if 3 shapes that the device decides are no larger"));
}

TEST_F(RehearsePrograms, WhereMasksThatExcludeEachOtherTakeTooMuchTheyHoldNowhere) {
  const Ran ran = rehearse({"--capacity", "1500MiB"}, {"masks.py", "experts"});
  EXPECT_EQ(ran.code, 0) << ran.out << ran.err;
  EXPECT_THAT(ran.out, HasSubstr("fits, if 12 shapes that the device decides are no larger"));
  EXPECT_THAT(ran.out, HasSubstr("masks that no kernel computed hold nowhere here: with masks that hold "
                                 "everywhere (--masks all) it does not fit\n"));
  const Ran neither = rehearse({"--capacity", "1500MiB"}, {"masks.py", "neither"});
  EXPECT_EQ(neither.code, 20) << neither.out << neither.err;
  EXPECT_THAT(neither.out, HasSubstr("(--masks all) it does not fit\n"));
  EXPECT_THAT(neither.out, ContainsRegex("with ample memory it takes 2.1[0-9] GiB"));
}

TEST_F(RehearsePrograms, WhatATritonKernelDoesNotGetStaysKnown) {
  const Ran ran = rehearse({"--capacity", "2GiB"}, {"triton_masks.py"});
  EXPECT_EQ(ran.code, 0) << ran.out << ran.err;
  EXPECT_THAT(ran.out, HasSubstr("known 3 written 8"));
}

TEST_F(RehearsePrograms, WhereMasksContradictEachOtherTheyHoldNowhere) {
  const Ran ran = rehearse({"--capacity", "2GiB", "--json", "masks.json"}, {"masks.py", "contradict"});
  EXPECT_EQ(ran.code, 0) << ran.out << ran.err;
  EXPECT_THAT(ran.out, HasSubstr("masks that no kernel computed hold nowhere here: with masks that hold "
                                 "everywhere (--masks all) the program ended with exit code 1\n"));
  EXPECT_THAT(ran.out, HasSubstr("fits, if 2 shapes that the device decides are no larger"));
  const auto report = nlohmann::json::parse(std::ifstream(folder() / "masks.json"));
  EXPECT_EQ(report.at("with_all_masks").at("exit_code"), 1);
  const Ran told = rehearse({"--capacity", "2GiB", "--masks", "all"}, {"masks.py", "contradict"});
  EXPECT_EQ(told.code, 1);
  EXPECT_THAT(told.out, HasSubstr("ValueError: more elements than there are"));
}

TEST_F(RehearsePrograms, ANumberThatIsOnlyPrintedMakesNoVerdictConditional) {
  const Ran ran = rehearse({"--capacity", "1GiB", "--json", "log.json"}, {"printed_numbers.py", "log"});
  EXPECT_EQ(ran.code, 0) << ran.err;
  EXPECT_THAT(ran.out, HasSubstr("0.000     0.00 1.0 1.0 -0 0.0 {\"loss\": 0.0}"));
  EXPECT_THAT(ran.out, HasSubstr("the verdict is unconditional: no value was read")) << ran.out;
  EXPECT_THAT(ran.out,
              ContainsRegex("[0-9]+ numbers were read to be printed or calculated with, which decides"));
  EXPECT_THAT(ran.out, ContainsRegex("1 ×  number printed_numbers.py:[0-9]+ log"));
  const auto report = nlohmann::json::parse(std::ifstream(folder() / "log.json"));
  EXPECT_GE(report.at("reads").size(), 3U);
  for (const auto& read : report.at("reads")) EXPECT_EQ(read.at("kind"), "number");
}

TEST_F(RehearsePrograms, ANumberThatDecidesSomethingIsNamedWhereItDoes) {
  for (const char* way : {"compared", "derived", "summed", "taken_as_true", "made_whole", "rounded",
                          "made_plain", "looked_up", "numpy", "pickled", "tensor"}) {
    const Ran ran = rehearse({"--capacity", "1GiB"}, {"printed_numbers.py", way});
    EXPECT_EQ(ran.code, 0) << ran.err;
    EXPECT_THAT(ran.out, HasSubstr("fits, if no value that it read decides")) << way;
    EXPECT_THAT(ran.out, ContainsRegex("[1-9] ×  branch .*printed_numbers.py:[0-9]+ <lambda>"))
        << way << ran.out;
  }
}

TEST_F(RehearsePrograms, SmallCopiesToTheHostMakeTheVerdictConditional) {
  const std::string on_one = "the verdict is conditional on 1 copy to the host of at most 1 MiB";
  for (const char* way : {"tolist", "cpu", "numpy", "pinned"}) {
    const Ran ran = rehearse({"--capacity", "1GiB"}, {"copies.py", way});
    EXPECT_EQ(ran.code, 0) << ran.err;
    EXPECT_THAT(ran.out, HasSubstr(on_one)) << way;
    EXPECT_THAT(ran.out, ContainsRegex("1 ×  copy   copies.py:[0-9]+ <module>")) << way;
  }
  EXPECT_THAT(rehearse({"--capacity", "1GiB"}, {"copies.py", "driver"}).out, HasSubstr(on_one));
  EXPECT_THAT(rehearse({"--capacity", "1GiB"}, {"copies.py", "graph"}).out,
              HasSubstr("conditional on 3 copies"));
  EXPECT_THAT(rehearse({"--capacity", "1GiB"}, {"copies.py", "killed"}).out, HasSubstr(on_one));
}

TEST_F(RehearsePrograms, WhatNobodyComputedMakesTheVerdictConditional) {
  const Words options = {"--capacity", "1GiB", "--values", "compute"};
  const Ran computed = rehearse(options, {"uncomputed.py"});
  EXPECT_THAT(computed.out, HasSubstr("the verdict is unconditional: every value was computed"))
      << computed.err;
  const Ran left = rehearse(options, {"uncomputed.py", "padded"});
  EXPECT_EQ(left.code, 0) << left.err;
  EXPECT_THAT(left.out, HasSubstr("fits, if nothing that was not computed decides what it allocates"));
  EXPECT_THAT(left.out, HasSubstr("the verdict is conditional on what 1 kernel would have computed"));
  EXPECT_THAT(left.out, ContainsRegex("1 ×  at::native::add_padding"));
  EXPECT_THAT(left.out, Not(HasSubstr("every value")));
  EXPECT_THAT(left.err, HasSubstr("no CPU kernel stood in for it"));
}

TEST_F(RehearsePrograms, RandomValuesAreTheSameSmallNumbersInEveryType) {
  const Ran ran = rehearse({"--capacity", "1GiB", "--values", "random"}, {"chances.py"});
  EXPECT_EQ(ran.code, 0) << ran.err;
  EXPECT_EQ(ran.err, "");
  std::string whole, floating;
  for (int i = 0; i <= 16; ++i) {
    whole += " " + std::to_string(i);
    floating += " " + std::to_string(i) + ".0";
  }
  for (const std::string type : {"float32", "float64", "float16", "bfloat16"}) {
    EXPECT_THAT(ran.out, HasSubstr("torch." + type + floating + "\n"));
    EXPECT_THAT(ran.out, HasSubstr("of torch." + type + " 0.0 1.0\n"));
  }
  for (const std::string type : {"int64", "int32", "int16"})
    EXPECT_THAT(ran.out, HasSubstr("torch." + type + whole + "\nof torch." + type + " 0 1\n"));
}

TEST_F(RehearsePrograms, BulkCopiesAreListedAndDecideNothing) {
  const Ran ran = rehearse({"--capacity", "1GiB", "--json", "report.json"}, {"copies.py", "bulk"});
  EXPECT_THAT(ran.out, HasSubstr("the verdict is unconditional"));
  EXPECT_THAT(ran.out, HasSubstr("1 bulk copy to the host"));
  EXPECT_THAT(ran.out, ContainsRegex("1 ×  bulk   copies.py:[0-9]+ <module>"));
  EXPECT_EQ(nlohmann::json::parse(std::ifstream(folder() / "report.json")).at("conditional"), false);
}

TEST_F(RehearsePrograms, ReadsOfAProcessWithoutPyTorchCount) {
  const Ran ran = rehearse({"--capacity", "1GiB", "--json", "report.json"}, {"without_torch.py"});
  EXPECT_EQ(ran.code, 0) << ran.err;
  EXPECT_THAT(ran.out, HasSubstr("conditional on 1 copy to the host"));
  EXPECT_THAT(ran.out, HasSubstr("not known: what held the memory of process"));
  EXPECT_EQ(nlohmann::json::parse(std::ifstream(folder() / "report.json")).at("conditional"), true);
}

TEST_F(RehearsePrograms, WhatIsOutsidePyTorchIsOfTheMomentOfThePeak) {
  const Ran ran = rehearse({"--capacity", "1GiB", "--json", "report.json"}, {"outside.py"});
  EXPECT_EQ(ran.code, 0) << ran.err;
  const auto device = nlohmann::json::parse(std::ifstream(folder() / "report.json")).at("devices").at(0);
  constexpr uint64_t kMiB = 1 << 20;
  EXPECT_EQ(device.at("peak_bytes"), 196 * kMiB);
  EXPECT_EQ(device.at("peak_reserved_bytes"), 194 * kMiB);
  EXPECT_EQ(device.at("outside_bytes"), 180 * kMiB) << "not the 2 MiB between peaks of two moments";
  EXPECT_EQ(device.at("outside_peak_bytes"), 180 * kMiB);
}

TEST_F(RehearsePrograms, AComputingRunAllocatesWhatOneWithoutValuesDoes) {
  const auto device = [this](const std::string& values) {
    const std::string file = values + ".json";
    const Ran ran = rehearse({"--gpu", "a100-40gb", "--values", values, "--json", file},
                             {"../../programs/values_gpt2.py", "cuda", "2"});
    EXPECT_EQ(ran.code, 0) << ran.err;
    return nlohmann::json::parse(std::ifstream(folder() / file)).at("devices").at(0);
  };
  auto without = device("zeros"), computing = device("compute");
  const auto allocated = without.at("peak_allocated_bytes").get<uint64_t>();
  EXPECT_GT(allocated, 12'000'000);
  // Attention keeps some hundred bytes a layer for its gradient, others on a CPU.
  EXPECT_NEAR(computing.at("peak_allocated_bytes").get<double>(), allocated, 4096);
  EXPECT_EQ(computing.at("peak_reserved_bytes"), without.at("peak_reserved_bytes"));
  auto parts = without.at("outside_parts");
  parts.erase(std::find_if(parts.begin(), parts.end(),
                           [](const auto& part) { return part.at("part") == "modules"; }));
  EXPECT_EQ(computing.at("outside_parts"), parts) << "no kernel of CUDA's is loaded";
}

TEST_F(RehearsePrograms, StepsEndTheProgramOrItSaysThatTheyDoNot) {
  const auto steps = [this](const char* way) {
    return rehearse({"--capacity", "1GiB", "--steps", "3"}, {"steps.py", way});
  };
  EXPECT_THAT(steps("one").out, HasSubstr("3 optimizer steps (ended there by --steps)"));
  EXPECT_THAT(steps("turns").out, HasSubstr("3 optimizer steps (ended there by --steps)"));
  EXPECT_THAT(rehearse({"--capacity", "1GiB", "--steps", "99"}, {"steps.py", "turns"}).out,
              HasSubstr("8 optimizer steps (it ended before the 99 of --steps)"));
  EXPECT_THAT(rehearse({"--capacity", "1GiB", "--steps", "3"}, {"holds.py", "1"}).out,
              HasSubstr("no optimizer step seen (it ended before the 3 of --steps)"));
  const std::string not_ended = "8 optimizer steps, ", said = "--steps cannot end the program: ";
  const Ran thread = steps("thread"), caught = steps("caught");
  EXPECT_THAT(thread.out, HasSubstr(not_ended));
  EXPECT_THAT(thread.err, HasSubstr(said + "its optimizers step in a thread of its own"));
  EXPECT_THAT(caught.out, HasSubstr(not_ended));
  EXPECT_THAT(caught.err, HasSubstr(said + "it caught the SystemExit"));
}

TEST_F(RehearsePrograms, CountsTheStepsOfTheProgramAndNotOfItsOptimizers) {
  EXPECT_THAT(rehearse({"--capacity", "1GiB"}, {"steps.py", "turns"}).out, HasSubstr("8 optimizer steps, "));
  EXPECT_THAT(rehearse({"--capacity", "1GiB"}, {"steps.py", "later"}).out, HasSubstr("15 optimizer steps, "));
}

TEST_F(RehearsePrograms, FindsTheLargestValueThatFits) {
  const Ran ran =
      rehearse({"--capacity", "300MiB", "--find", "n=1..9", "--json", "found.json"}, {"holds.py", "{n}"});
  EXPECT_EQ(ran.code, 0) << ran.err;
  EXPECT_THAT(ran.out, HasSubstr("the largest n that fits is 4\n"));
  const auto json = nlohmann::json::parse(std::ifstream(folder() / "found.json"));
  EXPECT_EQ(json.at("largest"), 4);
  EXPECT_EQ(json.at("tried").size(), 4U);  // 1, 2, what the line through their peaks says, one more
  EXPECT_EQ(json.at("kept_free_bytes"), 0) << "with only a capacity nothing is modelled";
  const Ran none = rehearse({"--capacity", "300MiB", "--find", "n=8..9"}, {"holds.py", "{n}"});
  EXPECT_EQ(none.code, 20) << none.err;
  EXPECT_THAT(none.out, HasSubstr("not even n 8 fits"));
}

TEST_F(RehearsePrograms, WhatItFindsLeavesAsMuchFreeAsIsModelled) {
  const Ran ran =
      rehearse({"--gpu", "t4-16gb", "--find", "n=24..480:24", "--json", "found.json"}, {"holds.py", "{n}"});
  EXPECT_EQ(ran.code, 0) << ran.err;
  const auto json = nlohmann::json::parse(std::ifstream(folder() / "found.json"));
  const uint64_t kept = json.at("kept_free_bytes");
  EXPECT_GT(kept, 0U);
  EXPECT_THAT(ran.out, ContainsRegex("the largest n that fits is 216, on a card of .* MiB less"));
  int fitting = 0;
  for (const auto& row : json.at("tried")) {
    if (row.at("verdict") != "fits") continue;
    ++fitting;
    EXPECT_LE(row.at("peak_bytes").get<uint64_t>() + kept, row.at("capacity_bytes").get<uint64_t>()) << row;
  }
  EXPECT_GE(fitting, 2);
  EXPECT_THAT(ran.err, HasSubstr("n 24: fits, "));
}

TEST_F(RehearsePrograms, ItsMachinesAreNotLeftToTheProgram) {
  std::ofstream(folder() / "look.sh")
      << "readlink /proc/$$/fd/* /proc/$PPID/fd/* | grep -c spillway-machine >> n\n";
  run({"rehearse", "--compare", "t4-16gb,a100-40gb", "--", "sh", "look.sh"});
  std::ifstream counts(folder() / "n");
  EXPECT_EQ(std::string(std::istreambuf_iterator<char>(counts), {}), "1\n1\n")
      << "the rehearsal's own, each time";
}

TEST_F(RehearsePrograms, ComparesCards) {
  const Ran ran = rehearse({"--compare", "t4-16gb,a100-40gb"}, {"holds.py", "300"});
  EXPECT_EQ(ran.code, 20) << ran.err;
  EXPECT_THAT(ran.out, ContainsRegex("t4-16gb +does not fit"));
  EXPECT_THAT(ran.out, ContainsRegex("a100-40gb +fits +18.75 GiB +18.75 GiB"));
}

TEST_F(RehearsePrograms, ACardThatPyTorchHasNoKernelsForIsRefusedAtItsFirstUse) {
  const Ran kernels = run({"simulate", "--gpu", "t4-16gb", "--", SPILLWAY_PYTHON, "-c",
                           "import torch; print(torch.cuda.get_arch_list())"});
  ASSERT_THAT(kernels.out, HasSubstr("sm_75")) << kernels.err;
  if (kernels.out.find("sm_70") != std::string::npos) GTEST_SKIP() << "this PyTorch has kernels for a V100";
  const Ran ran = rehearse({"--gpu", "v100-16gb"}, {"holds.py", "3", "exit"});
  EXPECT_EQ(ran.code, 24) << ran.err;
  EXPECT_THAT(ran.out,
              HasSubstr("no kernel image is available for compute capability 7.0: this build has sm_75 "));
  EXPECT_THAT(ran.out, Not(HasSubstr("margin")));
  const Ran compared = rehearse({"--compare", "t4-16gb,v100-16gb"}, {"holds.py", "3"});
  EXPECT_EQ(compared.code, 24) << compared.err;
  EXPECT_THAT(compared.out,
              ContainsRegex("v100-16gb +cannot run there: no kernels for this card +- +- +- +- +-"));
}

TEST_F(RehearsePrograms, ComparesAllocators) {
  const Ran ran =
      rehearse({"--capacity", "300MiB", "--allocator", "native,expandable,spillway", "--json", "rows.json"},
               {"fragments.py"});
  EXPECT_EQ(ran.code, 20) << ran.err;
  EXPECT_THAT(ran.out, ContainsRegex("native +does not fit"));
  EXPECT_THAT(ran.out, ContainsRegex("expandable +fits +2[0-9]+\\.00 MiB"));
  EXPECT_THAT(ran.out, ContainsRegex("spillway +fits +2[0-9]+\\.00 MiB"));
  const auto rows = nlohmann::json::parse(std::ifstream(folder() / "rows.json")).at("allocators");
  ASSERT_EQ(rows.size(), 3U);
  EXPECT_EQ(rows[0].at("allocator"), "native");
  EXPECT_EQ(rows[0].at("verdict"), "does_not_fit");
  for (const size_t row : {1, 2}) {
    EXPECT_EQ(rows[row].at("verdict"), "fits");
    EXPECT_EQ(rows[row].at("capacity_bytes"), 300 << 20);
  }
}

TEST_F(RehearsePrograms, CheckFailsOverItsBudgetAndNamesWhatGrew) {
  const auto check = [this](Words flags, const std::string& count) {
    Words words{"check", "--capacity", "1GiB", "--baseline", "memory.json"};
    words.insert(words.end(), flags.begin(), flags.end());
    words.insert(words.end(), {"--", SPILLWAY_PYTHON, SPILLWAY_PROGRAMS + std::string("holds.py"), count});
    return run(words);
  };
  EXPECT_EQ(check({}, "4").code, 2) << "there is no baseline yet";
  const Ran written = check({"--update-baseline", "--budget", "300MiB"}, "4");
  EXPECT_EQ(written.code, 0) << written.err;
  EXPECT_THAT(written.out, HasSubstr("baseline 'memory.json' is written\n  GPU 0: whole card 256.00 MiB"));
  const Ran over = check({"--update-baseline", "--budget", "100MiB"}, "4");
  EXPECT_EQ(over.code, 22) << over.err;
  EXPECT_THAT(over.out, HasSubstr("baseline 'memory.json' is not written"));
  const Ran grown = check({"--junit", "j.xml", "--markdown", "m.md"}, "6");
  EXPECT_EQ(grown.code, 22) << grown.err;
  EXPECT_THAT(grown.out, ContainsRegex(R"(\+128\.00 MiB +256\.00 MiB +→ 384\.00 MiB +holds\.py <module>)"));
  std::ifstream junit(folder() / "j.xml"), markdown(folder() / "m.md");
  EXPECT_THAT(std::string(std::istreambuf_iterator<char>(junit), {}), HasSubstr("failures=\"1\""));
  EXPECT_THAT(std::string(std::istreambuf_iterator<char>(markdown), {}),
              HasSubstr("| +128.00 MiB | 256.00 MiB |"));
  EXPECT_EQ(check({"--tolerance", "60%"}, "6").code, 0);
  EXPECT_EQ(check({"--tolerance", "1GiB", "--budget", "300MiB"}, "6").code, 22);
}

TEST_F(RehearsePrograms, ABaselineOfOtherSettingsIsRefused) {
  const auto check = [this](Words flags, const std::map<std::string, std::string>& environment) {
    Words words{"check", "--baseline", "memory.json"};
    words.insert(words.end(), flags.begin(), flags.end());
    words.insert(words.end(), {"--", SPILLWAY_PYTHON, SPILLWAY_PROGRAMS + std::string("holds.py"), "4"});
    return run(words, environment);
  };
  ASSERT_EQ(check({"--gpu", "t4-16gb", "--update-baseline"}, {}).code, 0);
  EXPECT_EQ(check({"--gpu", "T4 16GB"}, {}).code, 0);
  const auto refused = [&](const Words& flags, const char* what,
                           const std::map<std::string, std::string>& environment = {}) {
    const Ran ran = check(flags, environment);
    EXPECT_EQ(ran.code, 2) << what;
    EXPECT_THAT(ran.err, HasSubstr("'memory.json' was taken under other settings"));
    EXPECT_THAT(ran.err, HasSubstr(what));
    EXPECT_THAT(ran.err, HasSubstr("--update-baseline"));
  };
  refused({"--gpu", "l4-24gb"}, "card: t4-16gb there, l4-24gb here");
  refused({"--gpu", "t4-16gb", "--capacity", "12GiB"}, "memory of a card: 14.57 GiB");
  refused({"--gpu", "t4-16gb", "--steps", "3"}, "steps: all there, 3 here");
  refused({"--gpu", "t4-16gb", "--allocator", "expandable"}, "allocator: native there, expandable here");
  // Only the run shows these.
  refused({"--capacity", "15642329088"}, "card: t4-16gb there, none here");
  refused({"--gpu", "t4-16gb"}, "allocator: native there, expandable here",
          {{"PYTORCH_CUDA_ALLOC_CONF", "expandable_segments:True"}});
}

TEST_F(RehearsePrograms, APipeTakesTheStreamOfAllocations) {
  ASSERT_EQ(::mkfifo((folder() / "pipe").c_str(), 0600), 0);
  const Ran nobody = rehearse({"--capacity", "2GiB", "--trace", "pipe"}, {"reads.py"});
  EXPECT_EQ(nobody.code, 4) << nobody.err;
  EXPECT_THAT(nobody.err, HasSubstr("--trace: 'pipe' cannot be written: "));
  std::string through;
  std::thread reader([&] {
    std::ifstream pipe(folder() / "pipe");
    through.assign(std::istreambuf_iterator<char>(pipe), {});
  });
  EXPECT_EQ(rehearse({"--capacity", "2GiB", "--trace", "pipe"}, {"reads.py"}).code, 0);
  reader.join();
  EXPECT_EQ(rehearse({"--capacity", "2GiB", "--trace", "file"}, {"reads.py"}).code, 0);
  EXPECT_GT(through.size(), 100U);
  std::ifstream file(folder() / "file");
  EXPECT_EQ(through, std::string(std::istreambuf_iterator<char>(file), {}));
}

TEST_F(RehearsePrograms, AStreamOfAllocationsThatIsNotWholeIsSaidToBeSo) {
  const Ran ran = rehearse({"--capacity", "2GiB", "--trace", "file"}, {"full_disk.py"});
  EXPECT_EQ(ran.code, 4) << ran.err;
  EXPECT_THAT(ran.err, HasSubstr("--trace: 'file' ends early, its process could not write more to "));
  EXPECT_THAT(ran.err, HasSubstr(": File too large"));
  EXPECT_EQ(std::filesystem::file_size(folder() / "file"), 256U << 10);
}

TEST_F(RehearsePrograms, TwoRunsHaveTheSameStreamOfAllocations) {
  for (const char* file : {"first", "second"}) {
    const Ran ran = rehearse({"--capacity", "2GiB", "--trace", file}, {"reads.py"});
    ASSERT_EQ(ran.code, 0) << ran.err;
  }
  EXPECT_EQ(rehearse({"--compare", "t4-16gb,l4-24gb", "--trace", "row"}, {"reads.py"}).code, 0);
  EXPECT_GT(std::filesystem::file_size(folder() / "row.t4-16gb"), 100U);
  EXPECT_GT(std::filesystem::file_size(folder() / "row.l4-24gb"), 100U);
  std::ifstream first(folder() / "first"), second(folder() / "second");
  const std::string a(std::istreambuf_iterator<char>(first), {}),
      b(std::istreambuf_iterator<char>(second), {});
  EXPECT_GT(a.size(), 100U);
  EXPECT_EQ(a, b);
}

TEST_F(RehearsePrograms, AKilledProgramAndOneWithoutCudaHaveTheirOwnEnds) {
  const Ran killed = rehearse({"--capacity", "1GiB"}, {"holds.py", "1", "kill"});
  EXPECT_EQ(killed.code, 128 + SIGKILL) << killed.err;
  EXPECT_THAT(killed.out, HasSubstr("no verdict: the program failed"));
  const Ran plain = run({"rehearse", "--capacity", "1GiB", "--", "true"});
  EXPECT_EQ(plain.code, 23) << plain.err;
  EXPECT_THAT(plain.out, HasSubstr("no memory of a device was used"));
  EXPECT_EQ(run({"rehearse", "--capacity", "1GiB", "--", "no-such-command"}).code, 127);
}

TEST_F(RehearsePrograms, AProgramThatLeavesWithoutAWordIsMeasured) {
  const Ran ran = rehearse({"--capacity", "1GiB"}, {"holds.py", "3", "leave"});
  EXPECT_EQ(ran.code, 0) << ran.err;
  EXPECT_THAT(ran.out, ContainsRegex("GPU 0 .*192.00 MiB +832.00 MiB"));
  EXPECT_THAT(ran.out, Not(HasSubstr("no memory of a device was used")));
  EXPECT_THAT(ran.out, ContainsRegex("process [0-9]+ (left no report|ended at once)"));
}

TEST_F(RehearsePrograms, WhatAnAbortedProgramHadOutsidePyTorchIsOfItsPeak) {
  const Ran ran = rehearse({"--gpu", "t4-16gb", "--json", "report.json"}, {"aborts.py"});
  EXPECT_EQ(ran.code, 128 + SIGABRT) << ran.err;
  const auto device = nlohmann::json::parse(std::ifstream(folder() / "report.json")).at("devices").at(0);
  EXPECT_GE(device.at("peak_bytes"), 640 << 20);
  EXPECT_GT(device.at("outside_bytes"), 0U) << "the context";
  EXPECT_LT(device.at("outside_bytes"), 640 << 20);
  EXPECT_EQ(device.at("outside_bytes"), device.at("outside_peak_bytes"));
}

TEST_F(RehearsePrograms, TwoProcessesOnOneCardHaveOneMargin) {
  const Ran ran = rehearse({"--capacity", "1GiB", "--json", "shared.json"}, {"shares.py"});
  EXPECT_EQ(ran.code, 0) << ran.err;
  EXPECT_THAT(ran.out, ContainsRegex("GPU 0, all 2 processes .*384.00 MiB +640.00 MiB"));
  const auto json = nlohmann::json::parse(std::ifstream(folder() / "shared.json"));
  EXPECT_EQ(json.at("cards").at(0).at("peak_bytes"), 384 << 20);
  EXPECT_EQ(json.at("cards").at(0).at("processes"), 2);
  const Ran over = run({"check", "--capacity", "1GiB", "--budget", "300MiB", "--", SPILLWAY_PYTHON,
                        SPILLWAY_PROGRAMS + std::string("shares.py")});
  EXPECT_EQ(over.code, 22) << over.out;
}

TEST_F(RehearsePrograms, MemoryRefusedOutsideTheAllocatorDoesNotFit) {
  const Words card{"--gpu", "t4-16gb", "--capacity", "1GiB", "--once"};
  const Ran raised = rehearse(card, {"refused.py"});
  EXPECT_EQ(raised.code, 20) << raised.err;
  EXPECT_THAT(raised.out, HasSubstr("for modules (1 ×)"));
  EXPECT_THAT(raised.out, HasSubstr("torch.AcceleratorError: CUDA error: out of memory"));
  EXPECT_EQ(rehearse(card, {"refused.py", "catch"}).code, 21);
  EXPECT_EQ(rehearse(card, {"refused.py", "exit"}).code, 20) << "its handler gave up";
  for (const char* how : {"late", "hook"}) {
    const Ran other = rehearse(card, {"refused.py", how});
    EXPECT_EQ(other.code, 1) << how;
    EXPECT_THAT(other.out, HasSubstr("after 1 failed request")) << how;
    EXPECT_THAT(other.out, HasSubstr("builtins.KeyError")) << how;
  }
  const Ran small = rehearse({"--gpu", "t4-16gb", "--capacity", "64MiB", "--once"}, {"holds.py", "1"});
  EXPECT_EQ(small.code, 20) << "the context has no room";
}

TEST_F(RehearsePrograms, OptionsWinOverTheEnvironment) {
  const Ran ran = run({"rehearse", "--gpu", "t4-16gb", "--", SPILLWAY_PYTHON,
                       SPILLWAY_PROGRAMS + std::string("holds.py"), "1"},
                      {{"SPILLWAY_SIM_CAPACITY", "2MiB"},
                       {"SPILLWAY_SIM_DEVICES", "3"},
                       {"SPILLWAY_SIM_VALUES", "random"},
                       {"PYTORCH_CUDA_ALLOC_CONF", "expandable_segments:True"}});
  EXPECT_EQ(ran.code, 0) << ran.out << ran.err;
  EXPECT_THAT(ran.out, HasSubstr("  on t4-16gb of 14.57 GiB, allocator native with expandable segments"));
  EXPECT_THAT(ran.out, HasSubstr("values random"));
}

TEST_F(RehearsePrograms, EveryAllocatorIsWatched) {
  for (const char* allocator : {"expandable", "spillway"}) {
    const Ran ran = rehearse({"--capacity", "1GiB", "--allocator", allocator}, {"holds.py", "5"});
    EXPECT_EQ(ran.code, 0) << ran.err;
    EXPECT_THAT(ran.out, HasSubstr("at the peak of 320.00 MiB allocated")) << allocator;
    EXPECT_THAT(ran.out, HasSubstr("320.00 MiB   100%       5  holds.py:15 <module>")) << allocator;
    EXPECT_THAT(ran.out, Not(HasSubstr("note:"))) << allocator;
  }
}

}  // namespace
}  // namespace spillway::tools
