// Ranks as processes that are started anew: values, the death of one, and what stays behind.
#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <filesystem>

#include "simulator/libraries/nccl/communicator/unique_id.h"
#include "tests/nccl/ranks.h"

namespace spillway::nccl_test {
namespace {

using ::testing::HasSubstr;
namespace fs = std::filesystem;

std::string hex(const ncclUniqueId& id) {
  std::string text;
  for (const char c : id.internal) {
    std::array<char, 3> two{};
    std::snprintf(two.data(), two.size(), "%02x", static_cast<unsigned char>(c));
    text += two.data();
  }
  return text;
}

struct Ended {
  int status = -1;
  std::string output;
};

// A rank's program, started anew; its output comes through a pipe.
class Started {
 public:
  Started(const std::string& scenario, int rank, int ranks, const std::string& id) {
    std::array<int, 2> ends{};
    EXPECT_EQ(pipe2(ends.data(), O_CLOEXEC), 0);
    const std::string number = std::to_string(rank), count = std::to_string(ranks);
    id_ = fork();
    if (id_ == 0) {
      dup2(ends[1], STDOUT_FILENO);
      dup2(ends[1], STDERR_FILENO);
      execl(NCCL_RANK_PROGRAM, NCCL_RANK_PROGRAM, scenario.c_str(), number.c_str(), count.c_str(), id.c_str(),
            nullptr);
      _exit(127);
    }
    close(ends[1]);
    output_ = ends[0];
  }
  pid_t id() const { return id_; }
  Ended wait() const {
    Ended ended;
    std::array<char, 512> bytes{};
    for (ssize_t count = 0; (count = read(output_, bytes.data(), bytes.size())) > 0;)
      ended.output.append(bytes.data(), static_cast<size_t>(count));
    close(output_);
    EXPECT_EQ(waitpid(id_, &ended.status, 0), id_);
    return ended;
  }

 private:
  pid_t id_;
  int output_;
};

class Processes : public ::testing::Test {
 protected:
  void SetUp() override {
    folder_ = fs::temp_directory_path() / ("spillway-nccl-test-" + std::to_string(getpid()));
    fs::create_directories(folder_);
    setenv("SPILLWAY_SIM_NCCL_FOLDER", folder_.c_str(), 1);
    setenv("SPILLWAY_SIM_DEVICES", "8", 1);
    setenv("SPILLWAY_SIM_CAPACITY", "4GiB", 1);
    setenv("SPILLWAY_SIM_VALUES", "compute", 1);
  }
  void TearDown() override { fs::remove_all(folder_); }

  std::vector<Ended> run(const std::string& scenario, int ranks) {
    const std::string id = hex(unique_id());
    std::vector<Started> started;
    std::vector<Ended> ended;
    for (int rank = 0; rank < ranks; ++rank) started.emplace_back(scenario, rank, ranks, id);
    for (Started& one : started) ended.push_back(one.wait());
    return ended;
  }
  // Until a rank has made the communicator's file: before that it is a draft, which has an extension.
  void wait_for_file() const {
    const auto made = [this] {
      for (const auto& entry : fs::recursive_directory_iterator(folder_))
        if (entry.is_regular_file() && entry.path().extension().empty()) return true;
      return false;
    };
    for (const auto most = std::chrono::steady_clock::now() + std::chrono::seconds(60);
         !made() && std::chrono::steady_clock::now() < most;)
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    ASSERT_TRUE(made());
  }
  size_t files() const {
    size_t count = 0;
    for (const auto& entry : fs::recursive_directory_iterator(folder_)) count += entry.is_regular_file();
    return count;
  }

  fs::path folder_;
};

TEST_F(Processes, reduce_among_each_other_and_leave_nothing_behind) {
  for (const Ended& ended : run("plain", 4)) {
    EXPECT_EQ(ended.status, 0) << ended.output;
    EXPECT_EQ(ended.output, "160 violations ''\n") << "10, 40, 160";
  }
  EXPECT_EQ(files(), 0u);
  const auto mode = fs::status(folder_ / ("spillway-nccl-" + std::to_string(getuid()))).permissions();
  EXPECT_EQ(mode, fs::perms::owner_all);
}

TEST_F(Processes, may_end_without_destroying_the_communicator) {
  for (const Ended& ended : run("ends_without_destroying", 3)) EXPECT_EQ(ended.status, 0) << ended.output;
}

TEST_F(Processes, learn_that_a_rank_was_killed) {
  const auto start = std::chrono::steady_clock::now();
  const auto ended = run("dies", 3);
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(20));
  EXPECT_EQ(WTERMSIG(ended[2].status), SIGKILL);
  for (int rank : {0, 1}) {
    EXPECT_EQ(WEXITSTATUS(ended[rank].status), 6) << ended[rank].output;
    EXPECT_THAT(ended[rank].output, HasSubstr("6: rank 2 (process "));  // ncclRemoteError
    EXPECT_THAT(ended[rank].output, HasSubstr("ncclAllReduce(1 x ncclFloat32, ncclSum), collective 2"));
  }
  EXPECT_EQ(files(), 0u);
}

TEST_F(Processes, learn_that_a_rank_was_killed_before_all_had_come) {
  const std::string id = hex(unique_id());
  Started waiting("plain", 0, 3, id);
  Started dying("ends_when_killed", 1, 3, id);
  wait_for_file();
  std::this_thread::sleep_for(std::chrono::milliseconds(500));
  ASSERT_EQ(kill(dying.id(), SIGKILL), 0);
  const Ended ended = waiting.wait();
  dying.wait();
  EXPECT_EQ(WEXITSTATUS(ended.status), 3) << ended.output;
  EXPECT_THAT(ended.output, HasSubstr("ended before all ranks had come"));
}

TEST_F(Processes, do_not_wait_for_ever_for_ranks_that_never_come) {
  setenv("SPILLWAY_SIM_NCCL_TIMEOUT", "1", 1);
  const Ended ended = Started("plain", 1, 4, hex(unique_id())).wait();
  unsetenv("SPILLWAY_SIM_NCCL_TIMEOUT");
  EXPECT_EQ(WEXITSTATUS(ended.status), 3) << ended.output;
  EXPECT_THAT(ended.output, HasSubstr("these of 4 ranks did not come within 1 s: 0, 2, 3"));
}

// A rank claims its place in steps; here one has died between them.
TEST_F(Processes, learn_that_a_rank_died_on_its_way) {
  const ncclUniqueId id = unique_id();
  Started waiting("plain", 0, 2, hex(id));
  wait_for_file();
  std::string why;
  const auto meeting = nccl::read_unique_id(id);
  const auto file = nccl::SharedFile::open(meeting->place, 2, true, &why);
  ASSERT_TRUE(file) << why;
  constexpr uint64_t kNoProcess = 4194303;  // the largest id that Linux gives
  ASSERT_TRUE(file->rank(1).process.claim({kNoProcess, 1}));
  const Ended ended = waiting.wait();
  EXPECT_EQ(WEXITSTATUS(ended.status), 3) << ended.output;
  EXPECT_THAT(ended.output, HasSubstr("rank 1 (process 4194303) ended before all ranks had come"));
}

TEST_F(Processes, refuse_a_file_that_somebody_cut) {
  const std::string id = hex(unique_id());
  Started waiting("plain", 0, 2, id);
  wait_for_file();
  kill(waiting.id(), SIGKILL);
  waiting.wait();
  for (const auto& entry : fs::recursive_directory_iterator(folder_))
    if (entry.is_regular_file()) fs::resize_file(entry.path(), 100);
  const Ended ended = Started("plain", 1, 2, id).wait();
  EXPECT_EQ(WEXITSTATUS(ended.status), 3) << ended.output;
  EXPECT_THAT(ended.output, HasSubstr("is damaged: remove it"));
}

TEST_F(Processes, sweep_what_killed_ones_left) {
  const std::string id = hex(unique_id());
  Started lonely("plain", 0, 2, id);
  wait_for_file();
  ASSERT_EQ(kill(lonely.id(), SIGKILL), 0);
  lonely.wait();
  EXPECT_GE(files(), 1u) << "nobody was there to remove it";
  Started sweeping("makes_an_id", 0, 1, id);
  EXPECT_EQ(sweeping.wait().status, 0);
  EXPECT_EQ(files(), 0u);
}

}  // namespace
}  // namespace spillway::nccl_test
