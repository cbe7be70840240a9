// What a command is given to read stays as it is, and what cannot be read twice is refused at once.
#include <gmock/gmock.h>
#include <sys/stat.h>

#include "tests/tools/support.h"

namespace spillway::tools {
namespace {

using ::testing::HasSubstr;

class InputFile : public CommandTest {
 protected:
  void copy(const std::string& golden, const std::string& name) const {
    std::filesystem::copy_file(std::string(GOLDEN_FOLDER) + "/" + golden, folder() / name);
  }
};

TEST_F(InputFile, NoOutputTakesItsPlace) {
  copy("snapshot.pickle", "in.pickle");
  copy("rmm.dev1.csv", "in.dev1.csv");
  write("run/report.json", "{}");
  std::filesystem::create_symlink("in.pickle", folder() / "link.pickle");
  const std::string pickle = read("in.pickle"), log = read("in.dev1.csv");
  for (const std::vector<std::string>& words : std::vector<std::vector<std::string>>{
           {"report", "in.pickle", "--html", "in.pickle"},
           {"report", "in.pickle", "--perfetto", "./in.pickle"},
           {"report", "in.pickle", "--html", "link.pickle"},
           {"report", "in.dev1.csv", "--pickle", "in.dev1.csv"},
           {"report", "run", "--html", "run/report.json"},
           {"replay", "in.pickle", "--allocator", "native", "--out", "in.pickle"}}) {
    const Ran ran = run(words);
    EXPECT_EQ(ran.code, 2) << words[1] << " " << words.back();
    EXPECT_THAT(ran.err, HasSubstr("'" + words.back() + "' is a file that is read"));
  }
  EXPECT_EQ(read("in.pickle"), pickle);
  EXPECT_EQ(read("in.dev1.csv"), log);
  EXPECT_EQ(read("run/report.json"), "{}");
}

TEST_F(InputFile, ThePlanOfAConfigurationDoesNotTakeItsPlace) {
  const std::string text = "[data]\ncorpus = \"text\"\n";
  write("run.toml", text);
  const Ran ran = run({"plan", "run.toml", "--gpu", "16GiB", "--toml", "run.toml"});
  EXPECT_EQ(ran.code, 2) << ran.out;
  EXPECT_THAT(ran.err, HasSubstr("'run.toml' is a file that is read"));
  EXPECT_EQ(read("run.toml"), text);
}

// Nobody writes to it: opening it would wait for ever.
TEST_F(InputFile, APipeIsRefusedAtOnce) {
  ASSERT_EQ(::mkfifo((folder() / "pipe").c_str(), 0600), 0);
  copy("snapshot.pickle", "in.pickle");
  for (const std::vector<std::string>& words : std::vector<std::vector<std::string>>{
           {"report", "pipe"}, {"replay", "pipe", "--capacity", "1GiB"}, {"diff", "in.pickle", "pipe"}}) {
    const Ran ran = run(words);
    EXPECT_EQ(ran.code, 3) << words[0];
    EXPECT_THAT(ran.err, HasSubstr("'pipe' is read more than once"));
  }
}

TEST_F(InputFile, AStreamWithoutARequestIsNone) {
  write("steps.txt", "step\nstep\n");
  const Ran ran = run({"replay", "steps.txt", "--capacity", "1MiB"});
  EXPECT_EQ(ran.code, 3);
  EXPECT_THAT(ran.err, HasSubstr("steps.txt: holds no request"));
}

TEST_F(InputFile, HowManyValuesAnOptionTakesIsSaid) {
  EXPECT_THAT(run({"diff", "a", "--steps", "1"}).err, HasSubstr("--steps: it takes 2 values"));
  EXPECT_THAT(run({"diff", "a", "b", "c"}).err, HasSubstr("files: it takes 1 to 2 values"));
  EXPECT_THAT(run({"report", "a", "--html"}).err, HasSubstr("--html: it takes one value, and is given once"));
}

}  // namespace
}  // namespace spillway::tools
