// Every collective against a reference, for every type, in computing mode.
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_fp8.h>

#include <cmath>
#include <random>

#include "tests/nccl/ranks.h"

namespace spillway::nccl_test {
namespace {

class Values : public Nccl {
 protected:
  void SetUp() override { ASSERT_TRUE(computing()) << "ctest runs these on a simulator that computes"; }
};

template <typename T>
struct TypeOf;
template <ncclDataType_t type>
struct Is {
  static constexpr ncclDataType_t kType = type;
};
template <>
struct TypeOf<int8_t> : Is<ncclInt8> {};
template <>
struct TypeOf<uint8_t> : Is<ncclUint8> {};
template <>
struct TypeOf<int32_t> : Is<ncclInt32> {};
template <>
struct TypeOf<uint32_t> : Is<ncclUint32> {};
template <>
struct TypeOf<int64_t> : Is<ncclInt64> {};
template <>
struct TypeOf<uint64_t> : Is<ncclUint64> {};
template <>
struct TypeOf<float> : Is<ncclFloat32> {};
template <>
struct TypeOf<double> : Is<ncclFloat64> {};
template <>
struct TypeOf<__half> : Is<ncclFloat16> {};
template <>
struct TypeOf<__nv_bfloat16> : Is<ncclBfloat16> {};
template <>
struct TypeOf<__nv_fp8_e4m3> : Is<ncclFloat8e4m3> {};
template <>
struct TypeOf<__nv_fp8_e5m2> : Is<ncclFloat8e5m2> {};

template <typename T>
double number(T value) {
  if constexpr (std::is_arithmetic_v<T>)
    return static_cast<double>(value);
  else
    return static_cast<double>(static_cast<float>(value));
}

template <typename T>
std::vector<T> one(T value) {
  return {value};
}

// Small whole numbers: exact in every type, and so are their sums and products here.
template <typename T>
std::vector<T> part_of(int rank, size_t count) {
  std::vector<T> values;
  for (size_t i = 0; i < count; ++i) values.push_back(T(static_cast<float>((i + rank) % 2 + 1)));
  return values;
}

double reference(ncclRedOp_t op, int ranks, size_t index) {
  double value = 0;
  for (int rank = 0; rank < ranks; ++rank) {
    const double part = static_cast<double>((index + rank) % 2 + 1);
    if (rank == 0)
      value = part;
    else if (op == ncclProd)
      value *= part;
    else if (op == ncclMax)
      value = std::max(value, part);
    else if (op == ncclMin)
      value = std::min(value, part);
    else
      value += part;
  }
  return op == ncclAvg ? value / ranks : value;
}

template <typename T>
class Reductions : public Values {};
using Types = ::testing::Types<int8_t, uint8_t, int32_t, uint32_t, int64_t, uint64_t, float, double, __half,
                               __nv_bfloat16, __nv_fp8_e4m3, __nv_fp8_e5m2>;
TYPED_TEST_SUITE(Reductions, Types);

TYPED_TEST(Reductions, give_what_arithmetic_gives) {
  using T = TypeParam;
  // Odd, both: so neighbours differ in their results, and each rank's slice from the first.
  constexpr int kRanks = 3;
  constexpr size_t kCount = 1001;
  with_ranks(kRanks, [](Rank& rank) {
    for (const ncclRedOp_t op : {ncclSum, ncclProd, ncclMax, ncclMin, ncclAvg}) {
      const Buffer<T> in(part_of<T>(rank.number, kCount * kRanks)), out(kCount * kRanks), mine(kCount),
          root(kCount);
      const ncclDataType_t type = TypeOf<T>::kType;
      ASSERT_EQ(ncclAllReduce(in.get(), out.get(), kCount, type, op, rank.comm, rank.stream), ncclSuccess);
      ASSERT_EQ(ncclReduceScatter(in.get(), mine.get(), kCount, type, op, rank.comm, rank.stream),
                ncclSuccess);
      ASSERT_EQ(ncclReduce(in.get(), root.get(), kCount, type, op, 2, rank.comm, rank.stream), ncclSuccess);
      ASSERT_EQ(rank.wait(), cudaSuccess);
      const auto all = out.values(), slice = mine.values(), reduced = root.values();
      for (size_t i = 0; i < kCount; ++i) {
        const auto expected = [&](size_t index) {
          const double value = reference(op, kRanks, index);
          if constexpr (std::is_arithmetic_v<T>) return number(static_cast<T>(value));
          return number(T(static_cast<float>(value)));
        };
        ASSERT_EQ(number(all[i]), expected(i)) << op << " at " << i;
        ASSERT_EQ(number(slice[i]), expected(i + rank.number * kCount)) << op << " at " << i;
        if (rank.number == 2) {
          ASSERT_EQ(number(reduced[i]), expected(i)) << op << " at " << i;
        }
      }
    }
  });
}

TEST_F(Values, results_of_floats_have_the_same_bits_on_all_ranks_and_in_all_runs) {
  constexpr size_t kCount = 600'000;  // more than one piece
  std::vector<std::vector<float>> parts(3), results(3), again(3);
  for (auto* into : {&results, &again}) {
    with_ranks(3, [&](Rank& rank) {
      std::mt19937 random(rank.number);
      std::normal_distribution<float> normal;
      std::vector<float> values(kCount);
      for (float& value : values) value = normal(random);
      const Buffer<float> buffer(values);
      parts[rank.number] = values;
      ASSERT_EQ(
          ncclAllReduce(buffer.get(), buffer.get(), kCount, ncclFloat32, ncclSum, rank.comm, rank.stream),
          ncclSuccess);
      ASSERT_EQ(rank.wait(), cudaSuccess);
      (*into)[rank.number] = buffer.values();
    });
  }
  for (size_t i = 0; i < kCount; ++i) ASSERT_EQ(results[0][i], parts[0][i] + parts[1][i] + parts[2][i]) << i;
  EXPECT_EQ(results[0], results[1]);
  EXPECT_EQ(results[0], results[2]);
  EXPECT_EQ(results, again);
}

TEST_F(Values, what_is_no_number_stays_none) {
  with_ranks(3, [](Rank& rank) {
    // At each place another rank has none.
    std::vector<float> values{1, 2, 3};
    values[rank.number] = NAN;
    const Buffer<float> in(values), out(3);
    for (const ncclRedOp_t op : {ncclSum, ncclProd, ncclMax, ncclMin, ncclAvg}) {
      ASSERT_EQ(ncclAllReduce(in.get(), out.get(), 3, ncclFloat32, op, rank.comm, rank.stream), ncclSuccess);
      ASSERT_EQ(rank.wait(), cudaSuccess);
      for (const float value : out.values()) EXPECT_TRUE(std::isnan(value)) << op << " gives " << value;
    }
  });
}

TEST_F(Values, bytes_move_where_each_collective_says) {
  with_ranks(3, [](Rank& rank) {
    constexpr size_t kCount = 5;
    const int n = rank.number;
    const auto tagged = [&](int base, size_t count) {
      std::vector<int32_t> values(count);
      for (size_t i = 0; i < count; ++i) values[i] = base * 1000 + static_cast<int>(i);
      return values;
    };
    const Buffer<int32_t> in(tagged(n, 3 * kCount)), gathered(3 * kCount), exchanged(3 * kCount),
        sent(kCount), scattered(kCount), collected(3 * kCount);
    const auto type = ncclInt32;
    ASSERT_EQ(ncclAllGather(in.get(), gathered.get(), kCount, type, rank.comm, rank.stream), ncclSuccess);
    ASSERT_EQ(ncclAlltoAll(in.get(), exchanged.get(), kCount, type, rank.comm, rank.stream), ncclSuccess);
    ASSERT_EQ(ncclBroadcast(in.get(), sent.get(), kCount, type, 1, rank.comm, rank.stream), ncclSuccess);
    ASSERT_EQ(ncclScatter(in.get(), scattered.get(), kCount, type, 2, rank.comm, rank.stream), ncclSuccess);
    ASSERT_EQ(ncclGather(in.get(), collected.get(), kCount, type, 0, rank.comm, rank.stream), ncclSuccess);
    ASSERT_EQ(rank.wait(), cudaSuccess);
    for (int from = 0; from < 3; ++from)
      for (int i = 0; i < static_cast<int>(kCount); ++i) {
        const size_t at = from * kCount + i;
        EXPECT_EQ(gathered.values()[at], from * 1000 + i);
        EXPECT_EQ(exchanged.values()[at], from * 1000 + n * static_cast<int>(kCount) + i);
        EXPECT_EQ(sent.values()[i], 1000 + i);
        EXPECT_EQ(scattered.values()[i], 2000 + n * static_cast<int>(kCount) + i);
        if (n == 0) {
          EXPECT_EQ(collected.values()[at], from * 1000 + i);
        }
      }
  });
}

TEST_F(Values, messages_arrive_in_order_and_both_ways_at_once) {
  with_ranks(4, [](Rank& rank) {
    const int right = (rank.number + 1) % 4, left = (rank.number + 3) % 4;
    const Buffer<int64_t> first(one<int64_t>(rank.number * 10)), second(one<int64_t>(rank.number * 10 + 1)),
        to_self(one<int64_t>(77));
    const Buffer<int64_t> got_first(1), got_second(1), from_self(1);
    ASSERT_EQ(ncclGroupStart(), ncclSuccess);
    ASSERT_EQ(ncclSend(first.get(), 1, ncclInt64, right, rank.comm, rank.stream), ncclSuccess);
    ASSERT_EQ(ncclSend(second.get(), 1, ncclInt64, right, rank.comm, rank.stream), ncclSuccess);
    ASSERT_EQ(ncclRecv(got_first.get(), 1, ncclInt64, left, rank.comm, rank.stream), ncclSuccess);
    ASSERT_EQ(ncclRecv(got_second.get(), 1, ncclInt64, left, rank.comm, rank.stream), ncclSuccess);
    ASSERT_EQ(ncclSend(to_self.get(), 1, ncclInt64, rank.number, rank.comm, rank.stream), ncclSuccess);
    ASSERT_EQ(ncclRecv(from_self.get(), 1, ncclInt64, rank.number, rank.comm, rank.stream), ncclSuccess);
    ASSERT_EQ(ncclGroupEnd(), ncclSuccess);
    ASSERT_EQ(rank.wait(), cudaSuccess);
    EXPECT_EQ(got_first.values()[0], left * 10);
    EXPECT_EQ(got_second.values()[0], left * 10 + 1);
    EXPECT_EQ(from_self.values()[0], 77);
  });
}

TEST_F(Values, a_made_reduction_multiplies_each_part_first) {
  with_ranks(2, [](Rank& rank) {
    float half = 0.5f;
    const Buffer<float> quarter(one(0.25f)), in(one(8.0f)), a(1), b(1);
    ncclRedOp_t immediate, resident;
    ASSERT_EQ(ncclRedOpCreatePreMulSum(&immediate, &half, ncclFloat32, ncclScalarHostImmediate, rank.comm),
              ncclSuccess);
    ASSERT_EQ(ncclRedOpCreatePreMulSum(&resident, quarter.get(), ncclFloat32, ncclScalarDevice, rank.comm),
              ncclSuccess);
    half = 100;
    ASSERT_EQ(ncclAllReduce(in.get(), a.get(), 1, ncclFloat32, immediate, rank.comm, rank.stream),
              ncclSuccess);
    ASSERT_EQ(ncclAllReduce(in.get(), b.get(), 1, ncclFloat32, resident, rank.comm, rank.stream),
              ncclSuccess);
    ASSERT_EQ(rank.wait(), cudaSuccess);
    EXPECT_EQ(a.values()[0], 8);
    EXPECT_EQ(b.values()[0], 4);
    EXPECT_EQ(ncclRedOpDestroy(immediate, rank.comm), ncclSuccess);
    EXPECT_EQ(ncclRedOpDestroy(immediate, rank.comm), ncclInvalidArgument);
    EXPECT_EQ(ncclAllReduce(in.get(), a.get(), 1, ncclFloat32, immediate, rank.comm, rank.stream),
              ncclInvalidArgument);
    EXPECT_EQ(ncclRedOpDestroy(resident, rank.comm), ncclSuccess);
  });
}

TEST_F(Values, work_behind_a_collective_sees_its_result) {
  with_ranks(2, [](Rank& rank) {
    const Buffer<float> values(one(1.0f + static_cast<float>(rank.number))), copy(1);
    cudaStream_t other;
    cudaEvent_t event;
    ASSERT_EQ(cudaStreamCreateWithFlags(&other, cudaStreamNonBlocking), cudaSuccess);
    ASSERT_EQ(cudaEventCreateWithFlags(&event, cudaEventDisableTiming), cudaSuccess);
    ASSERT_EQ(ncclAllReduce(values.get(), values.get(), 1, ncclFloat32, ncclSum, rank.comm, rank.stream),
              ncclSuccess);
    ASSERT_EQ(cudaEventRecord(event, rank.stream), cudaSuccess);
    ASSERT_EQ(cudaStreamWaitEvent(other, event, 0), cudaSuccess);
    ASSERT_EQ(cudaMemcpyAsync(copy.get(), values.get(), 4, cudaMemcpyDeviceToDevice, other), cudaSuccess);
    ASSERT_EQ(cudaStreamSynchronize(other), cudaSuccess);
    EXPECT_EQ(copy.values()[0], 3);
    EXPECT_EQ(cudaEventDestroy(event), cudaSuccess);
    EXPECT_EQ(cudaStreamDestroy(other), cudaSuccess);
  });
}

}  // namespace
}  // namespace spillway::nccl_test
