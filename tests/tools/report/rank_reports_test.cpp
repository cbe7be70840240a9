// `spillway report` on reports of spillway-train that it did not write, or not whole.
#include <gmock/gmock.h>

#include "tests/tools/support.h"

namespace spillway::tools {
namespace {

class RankReports : public CommandTest {};

// A row for each rank that a report counts: its number is no more than there can be.
TEST_F(RankReports, NothingIsTakenOnTrust) {
  const auto refused = [this](const std::string& rank) {
    std::ofstream(folder() / "report.json")
        << R"({"spillway_run_report": 1, "verdict": "", "plans": [], "points": [], "all_moves": 0, "rank": )"
        << rank << "}";
    const Ran ran = run({"report", "report.json"});
    EXPECT_EQ(ran.code, 3) << rank << ran.err;
    EXPECT_THAT(ran.err, ::testing::HasSubstr("a report of another version: ")) << rank;
  };
  const std::string start = R"({"rank": 0, "waited_seconds": 0, "start": "", "incident": null, "size": )";
  for (const char* size : {"-1", "18446744073709551615", "1e18", "\"two\"", "null"})
    refused(start + size + "}");
  refused("{}");
}

}  // namespace
}  // namespace spillway::tools
