// The rules behind `spillway rehearse`: the verdict, the bisection, and what is read of damaged results.
#include <gmock/gmock.h>

#include <filesystem>
#include <fstream>

#include "tools/spillway/rehearse/find.h"
#include "tools/spillway/rehearse/outcome.h"

namespace spillway::tools {
namespace {

Rehearsal ended(int code, uint64_t failures, const char* uncaught = "", bool out_of_memory = false) {
  Observation process;
  process.has_probe = true;
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

Found find_where(int64_t low, int64_t high, const std::function<Fit(int64_t)>& fit) {
  return find_largest({"n", low, high}, [&](int64_t value) { return Tried{value, fit(value), {}, 0}; });
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

TEST(RehearseFind, StopsAtAProgramThatFailsAndSeesContradictions) {
  const Found failed = find_where(1, 9, [](int64_t n) { return n < 9 ? Fit::kFits : Fit::kProgramFailed; });
  EXPECT_TRUE(failed.stopped);
  EXPECT_FALSE(failed.largest) << "a run that failed for another reason says nothing of memory";
  EXPECT_NE(contradiction({{2, Fit::kDoesNotFit, {}, 0}, {3, Fit::kFits, {}, 0}}), "");
  EXPECT_EQ(contradiction({{3, Fit::kDoesNotFit, {}, 0}, {2, Fit::kFits, {}, 0}}), "");
  std::string error;
  for (const char* wrong :
       {"", "n", "n=1", "n=1..", "n=..4", "=1..4", "n=4..1", "n=1..4x", "n=1..99999999999999999999"})
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

}  // namespace
}  // namespace spillway::tools
