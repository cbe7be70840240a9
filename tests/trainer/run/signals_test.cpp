// What signals do to a run: its step and its checkpoint come first.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <filesystem>
#include <thread>

#include "tests/sanitized.h"
#include "tests/trainer/run/program.h"
#include "tests/trainer/scratch_folder.h"

namespace spillway::trainer {
namespace {

class Signals : public testing::Test {
 protected:
  void SetUp() override {
    ScratchFolder::write(scratch_.file("x.toml"),
                         "[model]\nlayers = 1\nwidth = 16\nheads = 2\ncontext = 8\n[data]\ncorpus = \"" +
                             scratch_.corpus() +
                             "\"\n[train]\nsteps = " + std::to_string(kSanitized ? 400 : 1500) +
                             "\nbatch = 2\n[run]\ndevice = \"cpu\"\nthreads = 1\n");
  }
  pid_t start(const std::string& out, std::vector<std::string> more = {}) {
    more.insert(more.end(), {"--config", scratch_.file("x.toml"), "--quiet", "--set",
                             "run.out=\"" + scratch_.file(out) + "\""});
    return start_program(more);
  }
  std::string read(const std::string& file) const { return ScratchFolder::read(scratch_.file(file)); }
  void wait_for_steps(const std::string& out, int64_t steps) const {
    const auto done = [&] {
      const std::string lines = read(out + "/losses.txt");
      return std::count(lines.begin(), lines.end(), '\n');
    };
    while (done() < steps) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }

  ScratchFolder scratch_;
};

// SIGTERM is what Slurm, Kubernetes and systemd send, and SIGHUP what a terminal that is closed does.
TEST_F(Signals, EachThatAsksForTheEndLeavesACheckpointToGoOnFrom) {
  ASSERT_EQ(exit_code_of(start("whole")), 0);
  for (const auto& [signal, name] : {std::pair(SIGTERM, "SIGTERM"), std::pair(SIGHUP, "SIGHUP")}) {
    const std::string out = name;
    const pid_t process = start(out, {"--set", "plan.update=just_in_time"});
    wait_for_steps(out, 3);
    ::kill(process, signal);
    EXPECT_EQ(exit_code_of(process), 128 + signal);
    EXPECT_THAT(read(out + "/report.txt"),
                testing::HasSubstr("interrupted by " + std::string(name) + " after step "));
    const std::string until_then = read(out + "/losses.txt");
    EXPECT_EQ(until_then, read("whole/losses.txt").substr(0, until_then.size()));
    EXPECT_EQ(exit_code_of(start(out, {"--resume", scratch_.file(out)})), 0);
    EXPECT_EQ(read(out + "/losses.txt"), read("whole/losses.txt"));
  }
}

// A launcher, and the group of a process, pass a signal on that the process has had already.
TEST_F(Signals, TheSameOneAtTheSameTimeIsNoSecondOne) {
  const pid_t process = start("twice");
  wait_for_steps("twice", 3);
  ::kill(process, SIGTERM);
  std::this_thread::sleep_for(std::chrono::microseconds(200));
  ::kill(process, SIGTERM);
  EXPECT_EQ(exit_code_of(process), 128 + SIGTERM);
  EXPECT_TRUE(std::filesystem::exists(scratch_.file("twice/checkpoint.safetensors")));
}

// Its steps are so long that the first signal alone would have it wait.
TEST_F(Signals, ASecondOneDoesNotWaitForTheStep) {
  for (const int signal : {SIGINT, SIGTERM}) {
    const std::string out = std::to_string(signal);
    const pid_t process =
        start(out, {"--set", "model.width=512", "--set", "model.context=256", "--set", "train.batch=256",
                    "--set", "model.layers=8", "--set", "plan.micro_batch=1"});
    while (!std::filesystem::exists(scratch_.file(out + "/losses.txt")))
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    std::this_thread::sleep_for(std::chrono::seconds(1));  // into the first step
    ::kill(process, signal);
    std::this_thread::sleep_for(std::chrono::milliseconds(1200));
    ::kill(process, signal);
    EXPECT_EQ(exit_code_of(process), 128 + signal);
    EXPECT_EQ(read(out + "/losses.txt"), "");
  }
}

// As nohup has it.
TEST_F(Signals, AHangupThatIsIgnoredStaysSo) {
  const auto before = std::signal(SIGHUP, SIG_IGN);
  const pid_t process = start("nohup");
  std::signal(SIGHUP, before);
  wait_for_steps("nohup", 3);
  ::kill(process, SIGHUP);
  EXPECT_EQ(exit_code_of(process), 0);
}

}  // namespace
}  // namespace spillway::trainer
