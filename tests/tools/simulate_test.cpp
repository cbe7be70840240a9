// `spillway simulate`: what the command that it runs finds, and the exit codes.
#include <gmock/gmock.h>
#include <sys/stat.h>

#include "tests/tools/support.h"

namespace spillway::tools {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

class Simulate : public CommandTest {
 protected:
  using Words = std::vector<std::string>;
  Ran simulate(Words flags, const Words& command, std::map<std::string, std::string> environment = {}) const {
    Words words{"simulate", "--capacity", "8GiB"};
    words.insert(words.end(), flags.begin(), flags.end());
    words.emplace_back("--");
    words.insert(words.end(), command.begin(), command.end());
    environment.try_emplace("SPILLWAY_LIB_DIR", FAKE_LIBRARIES);
    return run(words, environment);
  }
  const std::string sim_ = std::string(FAKE_LIBRARIES) + "/sim/";
};

TEST_F(Simulate, PassesTheExitCodeThrough) {
  EXPECT_EQ(simulate({}, {"sh", "-c", "exit 7"}).code, 7);
  EXPECT_EQ(simulate({}, {"true"}).code, 0);
  EXPECT_EQ(simulate({}, {"sh", "-c", "kill -TERM $$"}).code, 128 + SIGTERM);
}

// The command and each process of the program read it.
TEST_F(Simulate, AConfigurationIsNoPipe) {
  ASSERT_EQ(::mkfifo((folder() / "pipe").c_str(), 0600), 0);
  const Ran ran = simulate({"--config", "pipe"}, {"true"});
  EXPECT_EQ(ran.code, 2);
  EXPECT_THAT(ran.err, HasSubstr("'pipe' is no file that can be read several times"));
}

TEST_F(Simulate, PassesTheCommandsOwnFlagsOn) {
  const Ran ran = simulate({}, {"printf", "%s|", "--json", "--", "-c", "two words"});
  EXPECT_EQ(ran.out, "--json|--|-c|two words|");
}

TEST_F(Simulate, PreloadsTheLibrariesThatAreThereInFrontOfOthers) {
  std::ofstream(std::filesystem::path(sim_) / "libcublas.so.13.partial") << "not a library by its name";
  const Ran ran = simulate({}, {"printenv", "LD_PRELOAD"});
  EXPECT_EQ(ran.out, sim_ + "libcudart.so.13:" + sim_ + "libcublas.so.13:" + sim_ + "libzeta.so.9:" + sim_ +
                         "libcuda.so.1\n");
  const Ran loaded = simulate({}, {"grep", "-c", "fake_lib/sim/libcudart.so.13", "/proc/self/maps"});
  EXPECT_EQ(loaded.code, 0) << "the library was not loaded";
  const Ran after = simulate({}, {"printenv", "LD_PRELOAD", "LD_LIBRARY_PATH"},
                             {{"LD_PRELOAD", sim_ + "libcuda.so.1"},
                              {"LD_LIBRARY_PATH", "/elsewhere"},
                              {"ASAN_OPTIONS", "verify_asan_link_order=0"}});
  EXPECT_THAT(after.out, HasSubstr("libcuda.so.1:" + sim_ + "libcuda.so.1\n"));
  EXPECT_THAT(after.out, HasSubstr("fake_lib/sim:/elsewhere\n"));
}

TEST_F(Simulate, PutsTheDriverThatAProfileOrAFileNamesInTheNewestOnesPlace) {
  std::ofstream(folder() / "machine.toml") << "[driver]\nversion = \"12.8\"\n";
  for (const Words& flags : {Words{"--profile", "driver-12.8"}, Words{"--config", "machine.toml"}}) {
    const Ran ran = simulate(flags, {"printenv", "LD_PRELOAD", "LD_LIBRARY_PATH"});
    EXPECT_THAT(ran.out, HasSubstr(sim_ + "driver-12.8/libcuda.so.1\n" + sim_ + "driver-12.8:")) << ran.err;
    EXPECT_THAT(ran.out, Not(HasSubstr(sim_ + "libcuda.so.1"))) << ran.err;
  }
  for (const char* text : {"[driver]\nversion = \"11.4\"\n", "[driver", "driver = 12.8"}) {
    std::ofstream(folder() / "machine.toml") << text;
    const Ran ran = simulate({"--config", "machine.toml"}, {"printenv", "LD_PRELOAD"});
    EXPECT_THAT(ran.out, HasSubstr(sim_ + "libcuda.so.1\n")) << text;
  }
}

TEST_F(Simulate, ChoosesACard) {
  const Ran ran = simulate({"--gpu", "A100 40GB"}, {"printenv", "SPILLWAY_SIM_CARD"});
  EXPECT_EQ(ran.out, "a100-40gb\n") << ran.err;
  const Ran unknown = simulate({"--gpu", "a100"}, {"true"});
  EXPECT_EQ(unknown.code, 2);
  EXPECT_THAT(unknown.err, HasSubstr("'a100' is no card of the table: did you mean 'a100-40gb'?"));
  const Ran list = run({"simulate", "--list-gpus"});
  EXPECT_EQ(list.code, 0);
  EXPECT_THAT(list.out, HasSubstr("h200-141gb    NVIDIA H200"));
}

TEST_F(Simulate, DescribesTheMachine) {
  std::ofstream(folder() / "machine.toml") << "";
  const Ran ran = simulate({"--gpus", "2", "--values", "compute", "--config", "machine.toml"},
                           {"sh", "-c",
                            "echo $SPILLWAY_SIM_CAPACITY $SPILLWAY_SIM_DEVICES $SPILLWAY_SIM_VALUES; "
                            "echo $SPILLWAY_SIM_KERNELS; echo $SPILLWAY_SIM_CONFIG"});
  EXPECT_EQ(ran.out, "8589934592 2 compute\n" FAKE_LIBRARIES "/libspillway_kernels.so\n" +
                         (folder() / "machine.toml").string() + "\n")
      << ran.err;
}

TEST_F(Simulate, GivesEachRunTheSameHostAddressesAndOrderOfSets) {
  constexpr unsigned kNoRandomAddresses = 0x0040000;
  const Ran personality = simulate({}, {"cat", "/proc/self/personality"});
  EXPECT_TRUE(std::stoul(personality.out, nullptr, 16) & kNoRandomAddresses) << personality.out;
  EXPECT_EQ(simulate({}, {"printenv", "PYTHONHASHSEED"}).out, "0\n");
  EXPECT_EQ(simulate({}, {"printenv", "PYTHONHASHSEED"}, {{"PYTHONHASHSEED", "7"}}).out, "7\n");
}

TEST_F(Simulate, TheProgramHoldsTheMachineThatItsChildrenShare) {
  const Ran ran = simulate({}, {"sh", "-c", "sh -c 'readlink $SPILLWAY_SIM_MACHINE'"});
  EXPECT_THAT(ran.out, HasSubstr("spillway-machine")) << ran.err;
}

TEST_F(Simulate, AMachineHasALedgerOfItsOwnUnlessOneIsNamed) {
  const Words shows = {"sh", "-c", "sh -c 'readlink $SPILLWAY_LEDGER || echo $SPILLWAY_LEDGER'"};
  EXPECT_THAT(simulate({}, shows).out, HasSubstr("spillway-ledger"));
  EXPECT_THAT(simulate({}, shows, {{"SPILLWAY_LEDGER", "/proc/1/fd/another-machines"}}).out,
              HasSubstr("spillway-ledger"));
  EXPECT_EQ(simulate({}, shows, {{"SPILLWAY_LEDGER", "ours"}}).out, "ours\n");
  EXPECT_EQ(simulate({}, shows, {{"SPILLWAY_LEDGER", "off"}}).out, "off\n");
  EXPECT_EQ(simulate({}, shows, {{"SPILLWAY_SIM_MACHINE", "/tmp/shared"}}).out, "\n")
      << "as the others that share it";
}

TEST_F(Simulate, ACardOnTheCommandLineDropsTheMachineOfTheEnvironment) {
  const Ran ran = run({"simulate", "--gpu", "t4-16gb", "--", "sh", "-c",
                       "echo $SPILLWAY_SIM_CARD ${SPILLWAY_SIM_CAPACITY-unset} ${SPILLWAY_SIM_DEVICES-unset} "
                       "${SPILLWAY_SIM_CONFIG-unset}"},
                      {{"SPILLWAY_LIB_DIR", FAKE_LIBRARIES},
                       {"SPILLWAY_SIM_CARD", "a100-40gb"},
                       {"SPILLWAY_SIM_CAPACITY", "8GiB"},
                       {"SPILLWAY_SIM_DEVICES", "4"},
                       {"SPILLWAY_SIM_CONFIG", "/elsewhere.toml"}});
  EXPECT_EQ(ran.out, "t4-16gb unset unset unset\n") << ran.err;
}

TEST_F(Simulate, LeavesWhatIsNotGivenToTheFile) {
  std::ofstream(folder() / "machine.toml") << "";
  const Ran ran =
      run({"simulate", "--config", "machine.toml", "--", "sh", "-c",
           "echo ${SPILLWAY_SIM_CAPACITY-unset} ${SPILLWAY_SIM_VALUES-unset} ${SPILLWAY_SIM_KERNELS-unset}"},
          {{"SPILLWAY_LIB_DIR", FAKE_LIBRARIES}});
  EXPECT_EQ(ran.out, "unset unset " FAKE_LIBRARIES "/libspillway_kernels.so\n") << ran.err;
}

TEST_F(Simulate, TheEnvironmentMayDescribeTheCard) {
  const Ran ran = run({"simulate", "--", "printenv", "SPILLWAY_SIM_CAPACITY"},
                      {{"SPILLWAY_LIB_DIR", FAKE_LIBRARIES}, {"SPILLWAY_SIM_CAPACITY", "3GiB"}});
  EXPECT_EQ(ran.out, "3GiB\n") << ran.err;
}

TEST_F(Simulate, SaysWhichCommandCannotBeRun) {
  const Ran absent = simulate({}, {"no-such-command-here"});
  EXPECT_EQ(absent.code, 127);
  EXPECT_THAT(absent.err, HasSubstr("cannot run 'no-such-command-here': No such file"));
  std::ofstream(folder() / "plain") << "text";
  EXPECT_EQ(simulate({}, {"./plain"}).code, 126);
}

TEST_F(Simulate, SaysWhichLibrariesAreMissing) {
  const Ran none = simulate({}, {"true"}, {{"SPILLWAY_LIB_DIR", "/absent"}});
  EXPECT_EQ(none.code, 2);
  EXPECT_THAT(none.err, HasSubstr("looked for sim/libcuda.so.1 in '/absent'"));
  std::filesystem::create_directories(folder() / "lib/sim");
  std::ofstream(folder() / "lib/sim/libcuda.so.1") << "";
  const Ran half = simulate({}, {"true"}, {{"SPILLWAY_LIB_DIR", "lib"}});
  EXPECT_EQ(half.code, 2);
  EXPECT_THAT(half.err, HasSubstr("libcudart.so.13' is missing"));
  std::filesystem::create_symlink(FAKE_LIBRARIES "/sim", folder() / "sim");
  const Ran no_kernels = simulate({"--values", "compute"}, {"true"}, {{"SPILLWAY_LIB_DIR", "."}});
  EXPECT_EQ(no_kernels.code, 2);
  EXPECT_THAT(no_kernels.err, HasSubstr("needs libspillway_kernels_"));
  std::filesystem::create_directory(folder() / "two words");
  std::filesystem::create_symlink(FAKE_LIBRARIES "/sim", folder() / "two words/sim");
  const Ran spaced = simulate({}, {"true"}, {{"SPILLWAY_LIB_DIR", "two words"}});
  EXPECT_EQ(spaced.code, 2);
  EXPECT_THAT(spaced.err, HasSubstr("LD_PRELOAD cannot name it"));
}

TEST_F(Simulate, ExplainsWrongUsage) {
  const auto expect_refused = [this](const Words& words, const std::string& part) {
    const Ran ran = run(words, {{"SPILLWAY_LIB_DIR", FAKE_LIBRARIES}});
    EXPECT_EQ(ran.code, 2) << ran.err;
    EXPECT_THAT(ran.err, HasSubstr(part));
    EXPECT_EQ(ran.out, "");
  };
  expect_refused({}, "Usage: spillway");
  expect_refused({"simulat"}, "'simulat' is not a command. Did you mean 'simulate'?");
  expect_refused({"--versoin"}, "'--versoin' is not an option. Did you mean '--version'?");
  expect_refused({"simulate", "--", "true"}, "such as --capacity 8GiB");
  expect_refused({"simulate", "--capacity", "8GiB"}, "no command to run");
  expect_refused({"simulate", "--capacity", "8GiB", "true"}, "put the command behind '--'");
  expect_refused({"simulate", "--capacity", "8 gigs", "--", "true"}, "write a number of bytes");
  expect_refused({"simulate", "--capacity", "1MiB", "--", "true"}, "at least 2MiB");
  expect_refused({"simulate", "--capcity", "8GiB", "--", "true"}, "Did you mean '--capacity'?");
  expect_refused({"simulate", "--capacity", "8GiB", "--gpus", "0", "--", "true"}, "1 to 16");
  expect_refused({"simulate", "--capacity", "8GiB", "--values", "ones", "--", "true"}, "compute");
  expect_refused({"simulate", "--config", "absent.toml", "--", "true"}, "absent.toml");
}

TEST_F(Simulate, VersionAndHelpSucceed) {
  EXPECT_THAT(run({"--version"}).out, StartsWith("spillway "));
  EXPECT_THAT(run({"--help"}).out, HasSubstr("Exit codes:"));
  EXPECT_THAT(run({"simulate", "--help"}).out, HasSubstr("Exit codes:"));
  EXPECT_EQ(run({"report", "--help"}).code, 0);
}

}  // namespace
}  // namespace spillway::tools
