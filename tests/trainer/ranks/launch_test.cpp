// What the launchers' variables mean.
#include "trainer/ranks/launch.h"
#include "trainer/ranks/network/own_address.h"

#include <gtest/gtest.h>

#include <map>

namespace spillway::trainer {
namespace {

struct Read {
  std::optional<Launch> launch;
  std::string error;
};

Read read(const std::map<std::string, std::string>& variables) {
  Read result;
  result.launch = launch_of(
      [&](const char* name) {
        const auto it = variables.find(name);
        return it == variables.end() ? nullptr : it->second.c_str();
      },
      &result.error);
  return result;
}

std::map<std::string, std::string> torchrun() {
  return {{"RANK", "5"},
          {"WORLD_SIZE", "8"},
          {"LOCAL_RANK", "1"},
          {"LOCAL_WORLD_SIZE", "4"},
          {"MASTER_ADDR", "node0"},
          {"MASTER_PORT", "29500"}};
}

std::map<std::string, std::string> srun() {
  return {{"SLURM_STEP_ID", "0"}, {"SLURM_PROCID", "3"},      {"SLURM_STEP_NUM_TASKS", "4"},
          {"SLURM_LOCALID", "1"}, {"SLURM_JOB_ID", "123456"}, {"SLURM_STEP_NODELIST", "gpu[07-08]"}};
}

TEST(Launch, AProcessThatNobodyLaunchedIsAlone) {
  const Read alone = read({});
  ASSERT_TRUE(alone.launch) << alone.error;
  EXPECT_TRUE(alone.launch->is_alone());
  // A batch script's variables, without srun.
  EXPECT_TRUE(read({{"SLURM_JOB_ID", "7"}, {"SLURM_PROCID", "0"}, {"SLURM_NTASKS", "8"}}).launch->is_alone());
}

TEST(Launch, Torchruns) {
  auto variables = torchrun();
  Read read_one = read(variables);
  ASSERT_TRUE(read_one.launch) << read_one.error;
  EXPECT_EQ(read_one.launch->rank, 5u);
  EXPECT_EQ(read_one.launch->size, 8u);
  EXPECT_EQ(read_one.launch->local_rank, 1u);
  EXPECT_EQ(read_one.launch->address, "node0");
  EXPECT_EQ(read_one.launch->port, 29500);
  EXPECT_FALSE(read_one.launch->store_is_there);
  variables["TORCHELASTIC_USE_AGENT_STORE"] = "True";
  variables["TORCHELASTIC_RESTART_COUNT"] = "2";
  read_one = read(variables);
  EXPECT_TRUE(read_one.launch->store_is_there);
  EXPECT_EQ(read_one.launch->restart, 2u);
}

TEST(Launch, OfOneNeedsNoAddress) {
  EXPECT_TRUE(read({{"RANK", "0"}, {"WORLD_SIZE", "1"}}).launch->is_alone());
}

TEST(Launch, WhatIsMissingOrWrongIsNamed) {
  for (const char* name : {"RANK", "WORLD_SIZE", "LOCAL_RANK", "MASTER_ADDR", "MASTER_PORT"}) {
    auto variables = torchrun();
    variables.erase(name);
    const Read missing = read(variables);
    EXPECT_FALSE(missing.launch) << name;
    EXPECT_EQ(missing.error, std::string("the launcher has not set ") + name);
  }
  auto variables = torchrun();
  variables["RANK"] = "8";
  EXPECT_EQ(read(variables).error, "rank 8 is none of 8");
  for (const char* wrong : {"-1", "1x", "99999999999", " 1"}) {
    variables["RANK"] = wrong;
    EXPECT_FALSE(read(variables).launch) << wrong;
  }
  variables = torchrun();
  variables["MASTER_PORT"] = "70000";
  EXPECT_EQ(read(variables).error, "MASTER_PORT='70000' is no number from 0 to 65535");
}

TEST(Launch, Slurms) {
  const Read read_one = read(srun());
  ASSERT_TRUE(read_one.launch) << read_one.error;
  EXPECT_EQ(read_one.launch->rank, 3u);
  EXPECT_EQ(read_one.launch->size, 4u);
  EXPECT_EQ(read_one.launch->local_rank, 1u);
  EXPECT_EQ(read_one.launch->address, "gpu07");
  EXPECT_EQ(read_one.launch->port, 15000 + 3456);
  // Others that launch inside of a job, such as torchrun, come first.
  auto both = srun();
  both.merge(torchrun());
  EXPECT_EQ(read(both).launch->rank, 5u);
}

// torchrun counts its restarts, and Slurm how often the job was queued again.
TEST(Launch, StartsOfOneCommandLine) {
  const auto of = [](std::map<std::string, std::string> variables, const std::string& name = "",
                     const std::string& value = "") {
    if (!name.empty()) variables[name] = value;
    const Read found = read(variables);
    return found.launch ? std::pair(found.launch->repeats, found.launch->started_again)
                        : std::pair(false, true);
  };
  using Starts = std::pair<bool, bool>;
  EXPECT_EQ(of({}), Starts(false, false));
  EXPECT_EQ(of({}, "SLURM_RESTART_COUNT", "1"), Starts(false, false)) << "no job";
  EXPECT_EQ(of(torchrun()), Starts(false, false)) << "no agent keeps the store";
  EXPECT_EQ(of(torchrun(), "TORCHELASTIC_USE_AGENT_STORE", "True"), Starts(true, false));
  auto elastic = torchrun();
  elastic["TORCHELASTIC_USE_AGENT_STORE"] = "True";
  EXPECT_EQ(of(elastic, "TORCHELASTIC_RESTART_COUNT", "1"), Starts(true, true));
  EXPECT_EQ(of(srun()), Starts(true, false));
  EXPECT_EQ(of(srun(), "SLURM_RESTART_COUNT", "2"), Starts(true, true));
  auto single = srun();
  single["SLURM_STEP_NUM_TASKS"] = "1", single["SLURM_PROCID"] = "0";
  EXPECT_EQ(of(single, "SLURM_RESTART_COUNT", "2"), Starts(true, true));
  elastic.merge(srun());
  EXPECT_EQ(of(elastic, "SLURM_RESTART_COUNT", "1"), Starts(true, true)) << "torchrun in a job";
  auto wrong = srun();
  wrong["SLURM_RESTART_COUNT"] = "often";
  EXPECT_EQ(read(wrong).error, "SLURM_RESTART_COUNT='often' is no number from 0 to 4294967295");
}

TEST(Launch, ARanksOwnGpu) {
  const Launch third{.rank = 6, .size = 8, .local_rank = 2, .local_size = 4};
  EXPECT_EQ(own_gpu(third, ""), "2");
  EXPECT_EQ(own_gpu(third, "4,5,6,7"), "6");
  EXPECT_EQ(own_gpu(third, "4,5,GPU-8a"), "GPU-8a");
  EXPECT_EQ(own_gpu(third, "5"), "5") << "the launcher has chosen";
  EXPECT_EQ(own_gpu(third, "4,5"), std::nullopt);
}

TEST(Launch, FirstHosts) {
  EXPECT_EQ(first_host("alone"), "alone");
  EXPECT_EQ(first_host("a,b"), "a");
  EXPECT_EQ(first_host("n[3-5,9],m"), "n3");
  EXPECT_EQ(first_host("n[3,9]"), "n3");
  EXPECT_EQ(first_host("n[12]"), "n12");
  EXPECT_EQ(first_host("n[03-05]"), "n03");
  EXPECT_EQ(first_host("n["), "n");
  EXPECT_EQ(first_host(""), "");
}

TEST(Launch, ARankThatIsLeftAloneKnowsThatItWasStartedAgain) {
  const Read alone = read({{"RANK", "0"},
                           {"WORLD_SIZE", "1"},
                           {"LOCAL_RANK", "0"},
                           {"TORCHELASTIC_USE_AGENT_STORE", "True"},
                           {"TORCHELASTIC_RESTART_COUNT", "1"}});
  ASSERT_TRUE(alone.launch) << alone.error;
  EXPECT_TRUE(alone.launch->is_alone());
  EXPECT_TRUE(alone.launch->store_is_there);
  EXPECT_EQ(alone.launch->restart, 1u);
}

TEST(OwnAddress, IsTheOneByWhichTheOtherIsReached) {
  EXPECT_EQ(own_address_towards("127.0.0.1", 29500), "127.0.0.1");
  EXPECT_EQ(own_address_towards("127.0.0.9", 29500), "127.0.0.1");
  EXPECT_EQ(own_address_towards("no-such-host.invalid", 29500), "");
}

}  // namespace
}  // namespace spillway::trainer
