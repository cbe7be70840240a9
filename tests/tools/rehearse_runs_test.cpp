// `spillway rehearse` and `check` around the program: signals, standard input, what they write and where.
// Programs of the shell and libraries that do nothing are enough for that.
#include <gmock/gmock.h>
#include <signal.h>
#include <sys/stat.h>

#include <algorithm>
#include <chrono>
#include <thread>

#include "tests/tools/support.h"

namespace spillway::tools {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

class RehearseRuns : public CommandTest {
 protected:
  using Words = std::vector<std::string>;
  static std::map<std::string, std::string> environment() { return {{"SPILLWAY_LIB_DIR", FAKE_LIBRARIES}}; }
  static Words words_of(const std::string& command, const Words& flags, const std::string& script) {
    Words words{command};
    words.insert(words.end(), flags.begin(), flags.end());
    words.insert(words.end(), {"--", "sh", "-c", script});
    return words;
  }
  Ran rehearse(const Words& flags, const std::string& script) const {
    return run(words_of("rehearse", flags, script), environment());
  }
  Ran sh(const std::string& line) const {  // with $SPILLWAY
    const pid_t pid = ::fork();
    if (pid == 0) {
      if (::chdir(folder().c_str()) != 0) ::_exit(90);
      ::setenv("SPILLWAY_LIB_DIR", FAKE_LIBRARIES, 1);
      ::setenv("SPILLWAY", program().c_str(), 1);
      ::execl("/bin/sh", "sh", "-c", ("{ " + line + "; } >out 2>err").c_str(), nullptr);
      ::_exit(91);
    }
    return wait(pid);
  }
  std::string text_of(const std::string& name) const {
    std::ifstream file(folder() / name, std::ios::binary);
    return {std::istreambuf_iterator<char>(file), {}};
  }
  // Waits for the program's own sign that it runs.
  void wait_for(const std::string& name) const {
    for (int i = 0; i < 2000 && !fs::exists(folder() / name); ++i)
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    ASSERT_TRUE(fs::exists(folder() / name));
  }
};

TEST_F(RehearseRuns, AnAllocatorWithoutItsLibraryIsRefusedBeforeTheRun) {
  const Ran ran = rehearse({"--capacity", "1GiB", "--allocator", "spillway"}, "echo ran");
  EXPECT_NE(ran.code, 0);
  EXPECT_THAT(ran.err, HasSubstr("needs libspillway_torch_"));
  EXPECT_THAT(ran.out, testing::Not(HasSubstr("ran")));
}

TEST_F(RehearseRuns, WhatIsWrongOnTheCommandLineIsSaidInItsOwnWords) {
  const auto says = [this](const Words& words, const char* text, int code = 2) {
    const Ran ran = run(words, environment());
    EXPECT_EQ(ran.code, code) << text;
    EXPECT_THAT(ran.err, HasSubstr(text));
  };
  says({"rehearse", "--gpu"},
       "rehearse: --gpu: it takes one value, and is given once. See 'spillway rehearse --help'");
  says({"check", "--steps", "0", "--", "true"}, "check: --steps: ");
  says({"rehearse", "--gpu", "a100", "--", "true"}, "did you mean 'a100-40gb'?");
  says({"rehearse", "--gpu", "4091-24gb", "--", "true"}, "did you mean 'rtx4090-24gb'?");
  says({"rehearse", "--gpu", "mainframe", "--", "true"},
       "'mainframe' is no card of the table. There are t4-16gb");
  says({"rehearse", "--compare", "t4-16gb", "--capacity", "8GiB", "--", "true"}, "--compare names the cards");
  says({"check", "--gpu", "t4-16gb", "--budget", "22", "--", "true"}, "at least 2MiB");
  says({"check", "--gpu", "t4-16gb", "--update-baseline", "--", "true"}, "--baseline FILE");
  says({"rehearse", "--gpu", "t4-16gb", "--", "train.py"}, "a Python file is run by: -- python train.py",
       127);
}

TEST_F(RehearseRuns, AllocatorsAreNamedRightAndComparedAlone) {
  const auto says = [this](const Words& flags, const char* text) {
    const Ran ran = rehearse(flags, ": > ran");
    EXPECT_EQ(ran.code, 2) << text;
    EXPECT_THAT(ran.err, HasSubstr(text));
  };
  says({"--capacity", "1GiB", "--allocator", "native,expandible"}, "Did you mean 'expandable'?");
  says({"--capacity", "1GiB", "--allocator", ","}, "name one, or several");
  says({"--allocator", "native,expandable"}, "say which card");
  says({"--compare", "t4-16gb", "--allocator", "native,expandable"},
       "--compare and several allocators exclude each other");
  says({"--capacity", "1GiB", "--find", "n=1..2", "--trace", "t"}, "--trace has no place beside --find");
  const Ran check =
      run(words_of("check", {"--capacity", "1GiB", "--budget", "1GiB", "--allocator", "native,spillway"},
                   ": > ran"),
          environment());
  EXPECT_EQ(check.code, 2);
  EXPECT_THAT(check.err, HasSubstr("there is no 'native,spillway'"));
  EXPECT_FALSE(fs::exists(folder() / "ran"));
  // Without PyTorch every allocator is as good as the other.
  EXPECT_EQ(rehearse({"--capacity", "1GiB", "--allocator", "native,expandable"}, "echo . >> runs").code, 23);
  EXPECT_EQ(text_of("runs"), ".\n.\n");
}

TEST_F(RehearseRuns, ASignalToOnlyTheCommandReachesTheProgramAndEndsTheSeries) {
  const pid_t pid = start(words_of("rehearse", {"--compare", "t4-16gb,l4-24gb,a100-40gb"},
                                   "echo run >> runs; : > started; exec sleep 60"),
                          environment());
  wait_for("started");
  ASSERT_EQ(::kill(pid, SIGINT), 0);
  const Ran ran = wait(pid);
  EXPECT_EQ(ran.code, 130) << ran.err;
  EXPECT_EQ(text_of("runs"), "run\n");
  EXPECT_THAT(ran.err, HasSubstr("stopped by Interrupt"));
}

TEST_F(RehearseRuns, OfASeriesThatIsStoppedTheFinishedRowsStay) {
  const pid_t pid =
      start(words_of("rehearse", {"--compare", "t4-16gb,l4-24gb,a100-40gb", "--json", "rows.json"},
                     "echo run >> runs; [ $(wc -l < runs) = 2 ] || exit 0; : > started; exec sleep 60"),
            environment());
  wait_for("started");
  ASSERT_EQ(::kill(pid, SIGINT), 0);
  const Ran ran = wait(pid);
  EXPECT_EQ(ran.code, 130) << ran.err;
  EXPECT_THAT(ran.out, AllOf(HasSubstr("t4-16gb"), Not(HasSubstr("l4-24gb"))));
  EXPECT_THAT(text_of("rows.json"), AllOf(HasSubstr("t4-16gb"), Not(HasSubstr("l4-24gb"))));
}

TEST_F(RehearseRuns, ASignalToTheGroupEndsTheSeriesThoughTheProgramTakesItForSuccess) {
  // Without a command of its own: dash can lose a signal that its child gets too.
  const pid_t pid = start(words_of("rehearse", {"--compare", "t4-16gb,l4-24gb"},
                                   "trap 'exit 0' INT; echo run >> runs; : > started; while :; do :; done"),
                          environment());
  wait_for("started");
  ASSERT_EQ(::kill(-pid, SIGINT), 0);
  EXPECT_EQ(wait(pid).code, 130);
  EXPECT_EQ(text_of("runs"), "run\n");
}

TEST_F(RehearseRuns, AStoppedRunIsNeitherAVerdictNorABaseline) {
  for (const char* command : {"rehearse", "check"}) {
    Words flags{"--capacity", "1GiB"};
    if (std::string(command) == "check")
      flags.insert(flags.end(), {"--baseline", "b.json", "--update-baseline"});
    fs::remove(folder() / "started");
    const pid_t pid =
        start(words_of(command, flags, "trap 'exit 0' TERM; : > started; while :; do sleep 0.05; done"),
              environment());
    wait_for("started");
    ASSERT_EQ(::kill(pid, SIGTERM), 0);
    const Ran ran = wait(pid);
    EXPECT_EQ(ran.code, 128 + SIGTERM) << ran.err;
    EXPECT_EQ(ran.out, "");
    EXPECT_THAT(ran.err, HasSubstr("stopped before the program's end"));
  }
  EXPECT_FALSE(fs::exists(folder() / "b.json"));
}

TEST_F(RehearseRuns, AStoppedProgramLeavesNothingRunning) {
  const pid_t pid = start(words_of("rehearse", {"--capacity", "1GiB"},
                                   "sh -c 'trap \"\" TERM; echo $$ > stubborn; exec sleep 60' & "
                                   "sh -c 'echo $$ > id; exec sleep 60' & : > started; wait"),
                          environment());
  for (const char* name : {"started", "stubborn", "id"}) wait_for(name);
  std::this_thread::sleep_for(std::chrono::milliseconds(100));
  ASSERT_EQ(::kill(pid, SIGTERM), 0);
  const Ran ran = wait(pid);
  EXPECT_EQ(ran.code, 128 + SIGTERM);
  EXPECT_THAT(ran.out, HasSubstr("no verdict: the program was stopped: "));
  EXPECT_THAT(ran.out, HasSubstr("stopped by a signal (Terminated)"));
  for (const char* name : {"stubborn", "id"})
    EXPECT_NE(::kill(std::stoi(text_of(name)), 0), 0) << name << " still runs";
}

TEST_F(RehearseRuns, TheProgramEndsWhenTheCommandIsKilledAndTheNextOneRemovesWhatItLeft) {
  const fs::path temporary = folder() / "temporary";
  fs::create_directory(temporary);
  auto variables = environment();
  variables["TMPDIR"] = temporary.string();
  const pid_t pid = start(
      words_of("rehearse", {"--capacity", "1GiB"}, "echo $$ > id; : > started; exec sleep 60"), variables);
  wait_for("started");
  const pid_t program = std::stoi(text_of("id"));
  ASSERT_EQ(::kill(pid, SIGKILL), 0);
  wait(pid);
  const auto ended = [&] {  // nobody may be there to wait for it
    std::ifstream stat("/proc/" + std::to_string(program) + "/stat");
    std::string line;
    return !std::getline(stat, line) || line.find(") Z") != std::string::npos;
  };
  for (int i = 0; i < 1000 && !ended(); ++i) std::this_thread::sleep_for(std::chrono::milliseconds(5));
  EXPECT_TRUE(ended());
  ASSERT_FALSE(fs::is_empty(temporary));
  EXPECT_EQ(run(words_of("rehearse", {"--capacity", "1GiB"}, "true"), variables).code, 23);
  ASSERT_FALSE(fs::is_empty(temporary)) << "a folder so young may be somebody's";
  for (const auto& entry : fs::directory_iterator(temporary))
    fs::last_write_time(entry.path(), fs::file_time_type::clock::now() - std::chrono::hours(1));
  EXPECT_EQ(run(words_of("rehearse", {"--capacity", "1GiB"}, "true"), variables).code, 23);
  EXPECT_TRUE(fs::is_empty(temporary));
}

TEST_F(RehearseRuns, EveryRunOfASeriesReadsTheWholeFileAndAPipeIsSaidToBeReadOnce) {
  const std::string command =
      "$SPILLWAY rehearse --compare t4-16gb,l4-24gb -- sh -c 'cat >> seen; echo . >> seen'";
  std::ofstream(folder() / "input") << "skipped\nvalues\n";
  EXPECT_EQ(sh("{ read line; " + command + "; } < input").code, 23);
  EXPECT_EQ(text_of("seen"), "values\n.\nvalues\n.\n");
  fs::remove(folder() / "seen");
  const Ran piped = sh("{ echo values | " + command + "; }");
  EXPECT_EQ(text_of("seen"), "values\n.\n.\n");
  EXPECT_THAT(piped.err, HasSubstr("the standard input can be read only once"));
}

TEST_F(RehearseRuns, WhatIsNoFileIsWrittenToAndStays) {
  ASSERT_EQ(::mkfifo((folder() / "pipe").c_str(), 0600), 0);
  const int reader = ::open((folder() / "pipe").c_str(), O_RDONLY | O_NONBLOCK);
  EXPECT_EQ(rehearse({"--capacity", "1GiB", "--json", "pipe"}, "true").code, 23);
  EXPECT_TRUE(fs::is_fifo(folder() / "pipe"));
  char passed[1 << 16];
  const ssize_t size = ::read(reader, passed, sizeof passed);
  ::close(reader);
  EXPECT_THAT(std::string(passed, static_cast<size_t>(std::max<ssize_t>(size, 0))),
              HasSubstr("\"spillway_rehearse\": 1"));

  std::ofstream(folder() / "file") << "old";
  fs::permissions(folder() / "file", fs::perms::owner_read | fs::perms::owner_write);
  fs::create_symlink("file", folder() / "link");
  fs::create_symlink("made", folder() / "to_nothing");
  for (const char* name : {"link", "to_nothing"}) {
    EXPECT_EQ(rehearse({"--capacity", "1GiB", "--json", name}, "true").code, 23);
    EXPECT_TRUE(fs::is_symlink(folder() / name));
  }
  EXPECT_THAT(text_of("file"), HasSubstr("\"spillway_rehearse\": 1"));
  EXPECT_THAT(text_of("made"), HasSubstr("\"spillway_rehearse\": 1"));
  EXPECT_EQ(fs::status(folder() / "file").permissions(), fs::perms::owner_read | fs::perms::owner_write);

  const Ran out = rehearse({"--capacity", "1GiB", "--json", "/dev/stdout"}, "true");
  EXPECT_THAT(out.out, HasSubstr("no memory of a device was used"));
  EXPECT_THAT(out.out, HasSubstr("\"spillway_rehearse\": 1"));
}

TEST_F(RehearseRuns, WhatCanNotBeWrittenIsNoticedBeforeTheRun) {
  fs::create_directory(folder() / "folder");
  for (const std::string path : {"folder", "nowhere/file", "/proc/file", "/dev/full"}) {
    for (const Words& flags :
         {Words{"--capacity", "1GiB", "--json", path}, Words{"--compare", "t4-16gb", "--json", path},
          Words{"--capacity", "1GiB", "--trace", path}}) {
      const Ran ran = rehearse(flags, ": > ran");
      EXPECT_EQ(ran.code, 4) << path;
      EXPECT_THAT(ran.err, HasSubstr("'" + path + "' cannot be written: "));
    }
    for (const char* option : {"--json", "--junit", "--markdown"}) {
      const Ran ran =
          run(words_of("check", {"--capacity", "1GiB", "--budget", "1GiB", option, path}, ": > ran"),
              environment());
      EXPECT_EQ(ran.code, 4) << ran.err;
      EXPECT_THAT(ran.err, HasSubstr(std::string(option) + ": '" + path));
    }
  }
  for (const char* path : {"folder/../nowhere/t", "nowhere/t"}) {
    const Ran ran = rehearse({"--compare", "t4-16gb", "--trace", path}, ": > ran");
    EXPECT_EQ(ran.code, 4);
    EXPECT_THAT(ran.err, HasSubstr(std::string(path) + ".t4-16gb' cannot be written"));
  }
  EXPECT_FALSE(fs::exists(folder() / "ran"));
}

TEST_F(RehearseRuns, AStandardOutputThatIsFullIsNoSuccess) {
  EXPECT_EQ(sh("$SPILLWAY rehearse --capacity 1GiB -- true > /dev/full").code, 4);
}

TEST_F(RehearseRuns, ABaselineIsOnlyWrittenOfAProgramThatFitsAndThatIsSaid) {
  std::ofstream(folder() / "b.json") << "old";
  const Ran ran =
      run(words_of("check", {"--capacity", "1GiB", "--baseline", "b.json", "--update-baseline"}, "exit 3"),
          environment());
  EXPECT_EQ(ran.code, 3) << ran.err;
  EXPECT_THAT(ran.out, HasSubstr("baseline 'b.json' is not written"));
  EXPECT_EQ(text_of("b.json"), "old");
}

TEST_F(RehearseRuns, ASearchNamesHowTheProgramFailed) {
  const Ran ran = rehearse({"--capacity", "1GiB", "--find", "n=1..2"}, "exit $((6 + {n}))");
  EXPECT_EQ(ran.code, 7) << ran.err;
  EXPECT_THAT(ran.out,
              HasSubstr("no answer: with n 1, the program ended with exit code 7, and not for lack"));
}

}  // namespace
}  // namespace spillway::tools
