// What holds in both modes: who waits for whom, groups, splitting, errors, memory.
#include <nccl.h>

#include <atomic>
#include <chrono>
#include <future>
#include <optional>

#include "tests/nccl/ranks.h"

namespace spillway::nccl_test {
namespace {

using std::chrono::milliseconds;
using ::testing::HasSubstr;

class Behaviour : public Nccl {};

ncclResult_t sum(const Rank& rank, const Buffer<float>& buffer, size_t count = 1) {
  return ncclAllReduce(buffer.get(), buffer.get(), count, ncclFloat32, ncclSum, rank.comm, rank.stream);
}

TEST_F(Behaviour, submitting_holds_nobody_up_and_waiting_waits_for_the_last_rank) {
  std::atomic<bool> submitted{false}, last_came{false};
  with_ranks(3, [&](Rank& rank) {
    const Buffer<float> buffer(1);
    if (rank.number == 2) {
      while (!submitted) std::this_thread::sleep_for(milliseconds(1));
      std::this_thread::sleep_for(milliseconds(30));
      last_came = true;
    }
    ASSERT_EQ(sum(rank, buffer), ncclSuccess);
    if (rank.number == 0) submitted = true;
    ASSERT_EQ(rank.wait(), cudaSuccess);
    EXPECT_TRUE(last_came);
  });
}

// Where values are computed, each collective reads what the one before it on the stream wrote.
class BehaviourWithoutValues : public Behaviour {};

TEST_F(BehaviourWithoutValues, a_rank_may_be_far_ahead) {
  ASSERT_FALSE(computing()) << "ctest runs this on a simulator that computes nothing";
  std::atomic<int> ahead{0};
  with_ranks(2, [&](Rank& rank) {
    const Buffer<float> buffer(1);
    if (rank.number == 1)
      while (ahead < 1000) std::this_thread::sleep_for(milliseconds(1));
    for (int i = 0; i < 3000; ++i) {
      ASSERT_EQ(sum(rank, buffer), ncclSuccess);
      if (rank.number == 0) ++ahead;
    }
    ASSERT_EQ(rank.wait(), cudaSuccess);
  });
}

TEST_F(Behaviour, one_thread_drives_all_cards_in_a_group) {
  constexpr int kRanks = 4;
  ncclComm_t comms[kRanks];
  ASSERT_EQ(ncclCommInitAll(comms, kRanks, nullptr), ncclSuccess) << ncclGetLastError(nullptr);
  std::vector<std::unique_ptr<Buffer<float>>> buffers;
  for (int i = 0; i < kRanks; ++i) {
    ASSERT_EQ(cudaSetDevice(i), cudaSuccess);
    buffers.push_back(std::make_unique<Buffer<float>>(std::vector<float>{static_cast<float>(i)}));
  }
  ASSERT_EQ(ncclGroupStart(), ncclSuccess);
  for (int i = 0; i < kRanks; ++i)
    ASSERT_EQ(ncclAllReduce(buffers[i]->get(), buffers[i]->get(), 1, ncclFloat32, ncclSum, comms[i], nullptr),
              ncclSuccess);
  ASSERT_EQ(ncclGroupEnd(), ncclSuccess) << ncclGetLastError(nullptr);
  for (int i = 0; i < kRanks; ++i) {
    int device = -1, rank = -1, count = -1;
    EXPECT_EQ(ncclCommCuDevice(comms[i], &device), ncclSuccess);
    EXPECT_EQ(ncclCommUserRank(comms[i], &rank), ncclSuccess);
    EXPECT_EQ(ncclCommCount(comms[i], &count), ncclSuccess);
    EXPECT_EQ(device, i);
    EXPECT_EQ(rank, i);
    EXPECT_EQ(count, kRanks);
    ASSERT_EQ(cudaSetDevice(i), cudaSuccess);
    EXPECT_EQ(buffers[i]->values()[0], 6);
    buffers[i].reset();
  }
  for (ncclComm_t comm : comms) EXPECT_EQ(ncclCommDestroy(comm), ncclSuccess);
}

TEST_F(Behaviour, splitting_orders_by_key_and_leaves_out_who_has_no_color) {
  with_ranks(5, [](Rank& rank) {
    const int color = rank.number == 4 ? NCCL_SPLIT_NOCOLOR : rank.number % 2;
    ncclComm_t part = rank.comm;
    ASSERT_EQ(ncclCommSplit(rank.comm, color, -rank.number, &part, nullptr), ncclSuccess)
        << ncclGetLastError(nullptr);
    if (rank.number == 4) {
      EXPECT_EQ(part, nullptr);
      return;
    }
    int number = -1, count = -1;
    EXPECT_EQ(ncclCommUserRank(part, &number), ncclSuccess);
    EXPECT_EQ(ncclCommCount(part, &count), ncclSuccess);
    EXPECT_EQ(count, 2);
    EXPECT_EQ(number, rank.number < 2 ? 1 : 0);
    const Buffer<float> buffer(std::vector<float>{static_cast<float>(rank.number)});
    EXPECT_EQ(ncclAllReduce(buffer.get(), buffer.get(), 1, ncclFloat32, ncclSum, part, rank.stream),
              ncclSuccess);
    EXPECT_EQ(rank.wait(), cudaSuccess);
    EXPECT_EQ(buffer.values()[0], 2 + 2 * color);
    EXPECT_EQ(ncclCommDestroy(part), ncclSuccess);
  });
}

TEST_F(Behaviour, shrinking_leaves_ranks_out) {
  with_ranks(4, [](Rank& rank) {
    if (rank.number == 1) return;
    int excluded[] = {1};
    ncclComm_t rest = nullptr;
    ASSERT_EQ(ncclCommShrink(rank.comm, excluded, 1, &rest, nullptr, NCCL_SHRINK_DEFAULT), ncclSuccess)
        << ncclGetLastError(nullptr);
    int number = -1, count = -1;
    EXPECT_EQ(ncclCommUserRank(rest, &number), ncclSuccess);
    EXPECT_EQ(ncclCommCount(rest, &count), ncclSuccess);
    EXPECT_EQ(count, 3);
    EXPECT_EQ(number, rank.number == 0 ? 0 : rank.number - 1);
    EXPECT_EQ(ncclCommDestroy(rest), ncclSuccess);
  });
}

TEST_F(Behaviour, growing_keeps_the_ranks_that_are_there_and_takes_new_ones) {
  const ncclUniqueId first = unique_id();
  std::promise<ncclUniqueId> said;
  const std::shared_future<ncclUniqueId> id = said.get_future().share();
  on_cards(3, [&](int number) {
    const bool is_new = number == 2;
    ncclComm_t before = nullptr, comm = nullptr;
    if (!is_new) {
      ASSERT_EQ(ncclCommInitRank(&before, 2, first, number), ncclSuccess);
    }
    ncclUniqueId own = {};
    if (number == 0) {
      ASSERT_EQ(ncclCommGetUniqueId(before, &own), ncclSuccess) << ncclGetLastError(nullptr);
      EXPECT_EQ(ncclCommGetUniqueId(before, &own), ncclInvalidUsage) << "the one before is unused";
      said.set_value(own);
    }
    if (is_new) own = id.get();
    ASSERT_EQ(ncclCommGrow(before, 3, number == 1 ? nullptr : &own, is_new ? 2 : -1, &comm, nullptr),
              ncclSuccess)
        << ncclGetLastError(nullptr);
    int rank = -1, count = -1;
    EXPECT_EQ(ncclCommUserRank(comm, &rank), ncclSuccess);
    EXPECT_EQ(ncclCommCount(comm, &count), ncclSuccess);
    EXPECT_EQ(rank, number);
    EXPECT_EQ(count, 3);
    const Buffer<float> buffer(std::vector<float>{static_cast<float>(number + 1)});
    EXPECT_EQ(ncclAllReduce(buffer.get(), buffer.get(), 1, ncclFloat32, ncclSum, comm, nullptr), ncclSuccess);
    EXPECT_EQ(cudaStreamSynchronize(nullptr), cudaSuccess);
    EXPECT_EQ(buffer.values()[0], 6);
    EXPECT_EQ(ncclCommDestroy(comm), ncclSuccess);
    EXPECT_EQ(ncclCommDestroy(before), ncclSuccess);
  });
}

TEST_F(Behaviour, a_communicator_that_does_not_block_is_in_progress_until_all_ranks_came) {
  const ncclUniqueId id = unique_id();
  std::atomic<bool> asked{false};
  on_cards(2, [&](int number) {
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    config.blocking = 0;
    ncclComm_t comm = nullptr;
    ncclResult_t state = ncclSuccess;
    if (number == 1)
      while (!asked) std::this_thread::sleep_for(milliseconds(1));
    const ncclResult_t started = ncclCommInitRankConfig(&comm, 2, id, number, &config);
    ASSERT_TRUE(started == ncclInProgress || started == ncclSuccess);
    ASSERT_EQ(ncclCommGetAsyncError(comm, &state), ncclSuccess);
    if (number == 0) {
      EXPECT_EQ(state, ncclInProgress);
      EXPECT_EQ(ncclAllReduce(comm, comm, 0, ncclFloat32, ncclSum, comm, nullptr), ncclInvalidArgument);
      asked = true;
    }
    while (state == ncclInProgress) ASSERT_EQ(ncclCommGetAsyncError(comm, &state), ncclSuccess);
    EXPECT_EQ(state, ncclSuccess);
    EXPECT_EQ(ncclCommFinalize(comm), ncclSuccess);
    EXPECT_EQ(ncclCommDestroy(comm), ncclSuccess);
  });
}

// Ranks 0 and 1 call what differs; both learn both calls.
void expect_disagreement(const std::function<ncclResult_t(Rank&, const Buffer<float>&)>& call,
                         const std::vector<std::string>& words) {
  with_ranks(2, [&](Rank& rank) {
    const Buffer<float> buffer(64);
    const ncclResult_t called = call(rank, buffer);
    EXPECT_TRUE(called == ncclSuccess || called == ncclInvalidUsage) << called;
    EXPECT_EQ(rank.wait(), cudaErrorLaunchFailure);
    EXPECT_EQ(rank.state(), ncclInvalidUsage);
    for (const std::string& word : words) EXPECT_THAT(ncclGetLastError(nullptr), HasSubstr(word));
    EXPECT_EQ(sum(rank, buffer), ncclInvalidUsage) << "it does not go on as if nothing had been";
    EXPECT_EQ(ncclCommAbort(rank.comm), ncclSuccess);
    rank.comm = nullptr;
    EXPECT_EQ(rank.wait(), cudaSuccess);
  });
}

TEST_F(Behaviour, ranks_that_call_different_things_learn_both_calls) {
  expect_disagreement([](Rank& rank, const auto& buffer) { return sum(rank, buffer, 8 + rank.number); },
                      {"rank 0", "rank 1", "8 x ncclFloat32", "9 x ncclFloat32", "collective 1"});
  expect_disagreement(
      [](Rank& rank, const auto& buffer) {
        return ncclAllReduce(buffer.get(), buffer.get(), 8, rank.number ? ncclInt32 : ncclFloat32, ncclSum,
                             rank.comm, rank.stream);
      },
      {"ncclInt32", "ncclFloat32"});
  expect_disagreement(
      [](Rank& rank, const auto& buffer) {
        return ncclAllReduce(buffer.get(), buffer.get(), 8, ncclFloat32, rank.number ? ncclMax : ncclSum,
                             rank.comm, rank.stream);
      },
      {"ncclMax", "ncclSum"});
  expect_disagreement(
      [](Rank& rank, const auto& buffer) {
        if (rank.number == 0) return sum(rank, buffer);
        return ncclBroadcast(buffer.get(), buffer.get(), 1, ncclFloat32, 0, rank.comm, rank.stream);
      },
      {"ncclAllReduce", "ncclBroadcast", "root 0"});
  expect_disagreement(
      [](Rank& rank, const auto& buffer) {
        return rank.number == 0 ? ncclSend(buffer.get(), 4, ncclFloat32, 1, rank.comm, rank.stream)
                                : ncclRecv(buffer.get(), 5, ncclFloat32, 0, rank.comm, rank.stream);
      },
      {"message 1 from rank 0 to rank 1", "4 x ncclFloat32", "5 x ncclFloat32"});
}

TEST_F(Behaviour, aborting_ends_what_waits_and_the_others_learn_it) {
  with_ranks(2, [](Rank& rank) {
    const Buffer<float> buffer(1);
    if (rank.number == 1) {
      std::this_thread::sleep_for(milliseconds(50));
      EXPECT_EQ(ncclCommAbort(rank.comm), ncclSuccess);
      rank.comm = nullptr;
      return;
    }
    ASSERT_EQ(sum(rank, buffer), ncclSuccess);
    EXPECT_EQ(rank.wait(), cudaErrorLaunchFailure);
    EXPECT_EQ(rank.state(), ncclRemoteError);
    EXPECT_THAT(ncclGetLastError(nullptr), HasSubstr("rank 1"));
    EXPECT_THAT(ncclGetLastError(nullptr), HasSubstr("ncclAllReduce(1 x ncclFloat32, ncclSum)"));
  });
  with_ranks(2, [](Rank& rank) {
    const Buffer<float> buffer(1);
    if (rank.number == 1) {
      std::this_thread::sleep_for(milliseconds(300));
      return;
    }
    ASSERT_EQ(sum(rank, buffer), ncclSuccess);
    std::jthread watchdog([comm = std::exchange(rank.comm, nullptr)] {
      std::this_thread::sleep_for(milliseconds(50));
      EXPECT_EQ(ncclCommAbort(comm), ncclSuccess);
    });
    EXPECT_EQ(rank.wait(), cudaSuccess) << "as on hardware, where the kernel then returns";
  });
}

TEST_F(Behaviour, a_group_with_a_wrong_call_submits_nothing) {
  with_ranks(2, [](Rank& rank) {
    const Buffer<float> buffer(1);
    ASSERT_EQ(ncclGroupStart(), ncclSuccess);
    EXPECT_EQ(sum(rank, buffer), ncclSuccess);
    EXPECT_EQ(ncclSend(buffer.get(), 1, ncclFloat32, 7, rank.comm, rank.stream), ncclInvalidArgument);
    EXPECT_EQ(ncclGroupEnd(), ncclInvalidArgument);
    EXPECT_EQ(rank.wait(), cudaSuccess);
    EXPECT_EQ(ncclGroupEnd(), ncclInvalidUsage);
    EXPECT_EQ(sum(rank, buffer), ncclSuccess);
    EXPECT_EQ(rank.wait(), cudaSuccess);
  });
}

TEST_F(Behaviour, a_simulated_group_says_how_long_it_would_take) {
  with_ranks(2, [](Rank& rank) {
    const Buffer<float> buffer(kMiB);
    float times[2] = {};
    for (const size_t count : {size_t{1}, kMiB}) {
      ncclSimInfo_t info = NCCL_SIM_INFO_INITIALIZER;
      ASSERT_EQ(ncclGroupStart(), ncclSuccess);
      ASSERT_EQ(sum(rank, buffer, count), ncclSuccess);
      ASSERT_EQ(ncclGroupSimulateEnd(&info), ncclSuccess);
      times[count > 1] = info.estimatedTime;
    }
    EXPECT_GT(times[0], 0);
    EXPECT_GT(times[1], times[0]);
    const Buffer<float> all(2 * kMiB);
    ncclSimInfo_t gather = NCCL_SIM_INFO_INITIALIZER;
    ASSERT_EQ(ncclGroupStart(), ncclSuccess);
    ASSERT_EQ(ncclAllGather(buffer.get(), all.get(), kMiB, ncclFloat32, rank.comm, rank.stream), ncclSuccess);
    ASSERT_EQ(ncclGroupSimulateEnd(&gather), ncclSuccess);
    EXPECT_NEAR(times[1], gather.estimatedTime, 0.01 * times[1]) << "each gets so much from the other";
    EXPECT_EQ(rank.wait(), cudaSuccess) << "nothing was submitted";
  });
}

TEST_F(Behaviour, what_is_wrong_is_refused) {
  const ncclUniqueId id = unique_id();
  ncclComm_t comm = nullptr;
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  ncclUniqueId garbage = {};
  std::memset(garbage.internal, 0x5a, sizeof garbage.internal);
  EXPECT_EQ(ncclCommInitRank(&comm, 2, garbage, 0), ncclInvalidArgument);
  EXPECT_EQ(ncclCommInitRank(&comm, 2, id, 2), ncclInvalidArgument);
  EXPECT_EQ(ncclCommInitRank(&comm, 0, id, 0), ncclInvalidArgument);
  EXPECT_EQ(ncclCommInitRank(nullptr, 1, id, 0), ncclInvalidArgument);
  config.magic = 1;
  EXPECT_EQ(ncclCommInitRankConfig(&comm, 1, id, 0, &config), ncclInvalidArgument);
  EXPECT_EQ(comm, nullptr);
  const Buffer<float> buffer(1);
  ASSERT_EQ(ncclCommInitRank(&comm, 1, id, 0), ncclSuccess) << ncclGetLastError(nullptr);
  const auto call = [&](const void* from, size_t count, ncclDataType_t type) {
    return ncclAllReduce(from, buffer.get(), count, type, ncclSum, comm, nullptr);
  };
  EXPECT_EQ(call(nullptr, 1, ncclFloat32), ncclInvalidArgument);
  EXPECT_EQ(call(buffer.get(), 1, ncclNumTypes), ncclInvalidArgument);
  EXPECT_EQ(call(buffer.get(), SIZE_MAX / 2, ncclFloat32), ncclInvalidArgument);
  EXPECT_EQ(call(nullptr, 0, ncclFloat32), ncclSuccess);
  EXPECT_EQ(call(buffer.get(), 1, ncclFloat32), ncclSuccess) << ncclGetLastError(nullptr);
  EXPECT_EQ(cudaStreamSynchronize(nullptr), cudaSuccess);
  EXPECT_EQ(ncclCommDestroy(comm), ncclSuccess);
  EXPECT_EQ(ncclCommDestroy(comm), ncclInvalidArgument);
  EXPECT_EQ(call(buffer.get(), 1, ncclFloat32), ncclInvalidArgument);
}

TEST_F(Behaviour, a_card_is_in_a_communicator_once) {
  const ncclUniqueId id = unique_id();
  on_cards(2, [&](int number) {
    ncclComm_t comm = nullptr;
    ASSERT_EQ(cudaSetDevice(0), cudaSuccess);
    EXPECT_EQ(ncclCommInitRank(&comm, 2, id, number), ncclInvalidUsage);
    EXPECT_THAT(ncclGetLastError(nullptr), HasSubstr("Duplicate GPU detected"));
  });
}

TEST_F(Behaviour, memory_that_is_not_there_is_a_violation) {
  std::atomic<int> refused{0};
  with_ranks(2, [&](Rank& rank) {
    const Buffer<float> buffer(kMiB / 2);  // one granule
    refused += sum(rank, buffer, kMiB) == ncclUnhandledCudaError;
    EXPECT_EQ(ncclCommAbort(rank.comm), ncclSuccess);
    rank.comm = nullptr;
  });
  EXPECT_EQ(refused, 2);
  EXPECT_THAT(violations(), HasSubstr("'ncclAllReduce' submitted at"));
  control().reset();
}

TEST_F(Behaviour, what_nccl_takes_of_a_card_is_charged_and_given_back) {
  with_ranks(2, [](Rank& rank) {
    const Buffer<float> buffer(1);
    const uint64_t made = modelled_bytes(rank.number);
    EXPECT_GT(made, 0u);
    ASSERT_EQ(sum(rank, buffer), ncclSuccess);
    const uint64_t with_ring = modelled_bytes(rank.number);
    EXPECT_GE(with_ring, made + 4 * 10 * kMiB) << "four channels of three protocols' buffers";
    ASSERT_EQ(sum(rank, buffer), ncclSuccess);
    EXPECT_EQ(modelled_bytes(rank.number), with_ring) << "once";
    ASSERT_EQ(ncclGroupStart(), ncclSuccess);
    ASSERT_EQ(ncclSend(buffer.get(), 1, ncclFloat32, 1 - rank.number, rank.comm, rank.stream), ncclSuccess);
    ASSERT_EQ(ncclRecv(buffer.get(), 1, ncclFloat32, 1 - rank.number, rank.comm, rank.stream), ncclSuccess);
    ASSERT_EQ(ncclGroupEnd(), ncclSuccess);
    EXPECT_GT(modelled_bytes(rank.number), with_ring);
    ASSERT_EQ(rank.wait(), cudaSuccess);
    EXPECT_EQ(ncclCommDestroy(rank.comm), ncclSuccess);
    rank.comm = nullptr;
    EXPECT_EQ(modelled_bytes(rank.number), 0u);
  });
}

uint64_t statistic(ncclComm_t comm, ncclCommMemStat_t which) {
  uint64_t value = ~uint64_t{0};
  EXPECT_EQ(ncclCommMemStats(comm, which, &value), ncclSuccess);
  return value;
}

TEST_F(Behaviour, a_suspended_communicator_gives_its_connections_memory_back) {
  with_ranks(2, [](Rank& rank) {
    const Buffer<float> buffer(1);
    const uint64_t made = modelled_bytes(rank.number);
    ASSERT_EQ(sum(rank, buffer), ncclSuccess);
    ASSERT_EQ(rank.wait(), cudaSuccess);
    const uint64_t connected = modelled_bytes(rank.number);
    EXPECT_EQ(statistic(rank.comm, ncclStatGpuMemPersist), made);
    EXPECT_EQ(statistic(rank.comm, ncclStatGpuMemTotal), connected);
    ASSERT_EQ(ncclCommSuspend(rank.comm, NCCL_SUSPEND_MEM), ncclSuccess);
    EXPECT_EQ(modelled_bytes(rank.number), made);
    EXPECT_EQ(statistic(rank.comm, ncclStatGpuMemSuspended), 1u);
    EXPECT_EQ(sum(rank, buffer), ncclInvalidUsage) << "until it is resumed";
    size_t free = 0, total = 0;
    ASSERT_EQ(cudaMemGetInfo(&free, &total), cudaSuccess);
    void* everything = nullptr;
    ASSERT_EQ(cudaMalloc(&everything, free - 4 * kMiB), cudaSuccess);
    EXPECT_EQ(ncclCommResume(rank.comm), ncclUnhandledCudaError);
    EXPECT_EQ(modelled_bytes(rank.number), made) << "as it was";
    EXPECT_EQ(cudaFree(everything), cudaSuccess);
    ASSERT_EQ(ncclCommResume(rank.comm), ncclSuccess);
    EXPECT_EQ(modelled_bytes(rank.number), connected);
    EXPECT_EQ(statistic(rank.comm, ncclStatGpuMemSuspended), 0u);
    EXPECT_EQ(sum(rank, buffer), ncclSuccess);
    EXPECT_EQ(rank.wait(), cudaSuccess);
  });
}

TEST_F(Behaviour, a_card_without_room_for_nccls_buffers_refuses_the_first_collective) {
  with_ranks(2, [](Rank& rank) {
    const Buffer<float> buffer(1);
    size_t free = 0, total = 0;
    ASSERT_EQ(cudaMemGetInfo(&free, &total), cudaSuccess);
    void* everything = nullptr;
    ASSERT_EQ(cudaMalloc(&everything, free - 4 * kMiB), cudaSuccess);
    EXPECT_EQ(sum(rank, buffer), ncclUnhandledCudaError);
    EXPECT_THAT(ncclGetLastError(nullptr), HasSubstr("Failed to CUDA calloc"));
    EXPECT_EQ(cudaFree(everything), cudaSuccess);
    EXPECT_EQ(sum(rank, buffer), ncclSuccess) << "with room it goes on";
    EXPECT_EQ(rank.wait(), cudaSuccess);
  });
}

TEST_F(Behaviour, nccls_own_memory_is_whole_pages_that_every_card_reaches) {
  with_ranks(2, [](Rank& rank) {
    void* memory = nullptr;
    size_t before = 0, after = 0, total = 0;
    ASSERT_EQ(cudaMemGetInfo(&before, &total), cudaSuccess);
    ASSERT_EQ(ncclMemAlloc(&memory, 100), ncclSuccess) << ncclGetLastError(nullptr);
    ASSERT_EQ(cudaMemGetInfo(&after, &total), cudaSuccess);
    EXPECT_EQ(before - after, 2 * kMiB);
    void* registration = nullptr;
    ncclWindow_t window = nullptr;
    EXPECT_EQ(ncclCommRegister(rank.comm, memory, 100, &registration), ncclSuccess);
    EXPECT_EQ(ncclCommWindowRegister(rank.comm, memory, 100, &window, NCCL_WIN_COLL_SYMMETRIC), ncclSuccess);
    EXPECT_EQ(ncclAllReduce(memory, memory, 25, ncclFloat32, ncclSum, rank.comm, rank.stream), ncclSuccess);
    EXPECT_EQ(rank.wait(), cudaSuccess);
    EXPECT_EQ(ncclCommWindowDeregister(rank.comm, window), ncclSuccess);
    EXPECT_EQ(ncclCommDeregister(rank.comm, registration), ncclSuccess);
    EXPECT_EQ(ncclCommDeregister(rank.comm, registration), ncclInvalidArgument);
    EXPECT_EQ(ncclMemFree(memory), ncclSuccess);
    EXPECT_EQ(ncclMemFree(memory), ncclInvalidUsage);
  });
}

TEST_F(Behaviour, finalizing_flushes) {
  with_ranks(2, [](Rank& rank) {
    const Buffer<float> buffer(1);
    ASSERT_EQ(sum(rank, buffer), ncclSuccess);
    EXPECT_EQ(ncclCommFinalize(rank.comm), ncclSuccess);
    EXPECT_EQ(rank.state(), ncclSuccess);
    EXPECT_EQ(rank.wait(), cudaSuccess);
  });
}

}  // namespace
}  // namespace spillway::nccl_test
