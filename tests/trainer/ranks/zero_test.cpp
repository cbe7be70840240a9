// What ranks share of a training changes no bit: ranks as threads, over Gloo.
#include <ATen/Parallel.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <mutex>

#include "tests/sanitized.h"
#include "tests/trainer/data/test_corpus.h"
#include "tests/trainer/ranks/over_threads.h"
#include "tests/trainer/recovery/outcome.h"
#include "tests/trainer/small_models.h"
#include "trainer/ranks/whole/row_gather.h"
#include "trainer/step/training_step.h"

namespace spillway::trainer {
namespace {

using SharedRanks = std::shared_ptr<Ranks>;

// A vector a rank, of `elements` numbers that say where they are, in small rounds.
struct Numbers {
  Numbers(Ranks& ranks, int64_t elements, at::ScalarType type, const Numerics& numerics)
      : partition(numerics, {plain_parameter(-1, {elements})}, ranks.size(), 4096),
        exchange(ranks, partition, at::kCPU, type),
        mine(of_rank(ranks.rank(), elements, type)) {}
  static at::Tensor of_rank(uint32_t rank, int64_t elements, at::ScalarType type) {
    return at::arange(elements).mul(0.37 + rank).sin().to(type);
  }
  Exchange::Tensors rows() const {
    return [this](const Partition::Piece& piece) -> std::vector<at::Tensor> {
      return {mine.narrow(0, piece.span.begin, piece.span.length)};
    };
  }
  const Partition partition;
  Exchange exchange;
  at::Tensor mine;
};

// Floats are added in the order of the ranks and rounded once.
at::Tensor reference_sum(uint32_t ranks, int64_t elements, at::ScalarType type) {
  at::Tensor sum = Numbers::of_rank(0, elements, type).to(at::kFloat);
  for (uint32_t rank = 1; rank < ranks; ++rank)
    sum.add_(Numbers::of_rank(rank, elements, type).to(at::kFloat));
  return sum.to(type);
}

TEST(Exchange, AddsUpInTheOrderOfTheRanks) {
  for (const uint32_t size : {2u, 3u})
    for (const auto precision : {Precision::kFloat32, Precision::kBf16}) {
      const at::ScalarType type = precision == Precision::kFloat32 ? at::kFloat : at::kBFloat16;
      constexpr int64_t kElements = 5000;
      const at::Tensor sum = reference_sum(size, kElements, type);
      on_ranks(size, [&](const SharedRanks& ranks) {
        const at::NoGradGuard no_grad;
        Numbers whole(*ranks, kElements, type, {.precision = precision});
        EXPECT_GT(whole.partition.rounds(0).size(), 1u);
        size_t done = 0;
        whole.exchange.sum(0, whole.rows(), true, &done);
        EXPECT_TRUE(at::equal(whole.mine, sum));
        Numbers shared(*ranks, kElements, type, {.precision = precision});
        size_t again = 0;
        shared.exchange.sum(0, shared.rows(), false, &again);
        const auto [begin, length] = shared.partition.sections(0)[ranks->rank()];
        EXPECT_TRUE(at::equal(shared.mine.narrow(0, begin, length), sum.narrow(0, begin, length)));
        shared.exchange.gather(0, shared.rows());
        EXPECT_TRUE(at::equal(shared.mine, sum));
      });
    }
}

// The others are in the second round then, and wait for it.
TEST(Exchange, GoesOnWithTheRoundForWhichThereWasNoMemory) {
  constexpr int64_t kElements = 5000;
  const at::Tensor sum = reference_sum(2, kElements, at::kFloat);
  on_ranks(2, [&](const SharedRanks& ranks) {
    const at::NoGradGuard no_grad;
    Numbers numbers(*ranks, kElements, at::kFloat, {});
    size_t done = 0;
    bool fails = ranks->leads();
    const auto rows = [&](const Partition::Piece& piece) {
      TORCH_CHECK_WITH(OutOfMemoryError, !fails || done == 0, "out of memory");
      return numbers.rows()(piece);
    };
    if (fails) {
      EXPECT_THROW(numbers.exchange.sum(0, rows, true, &done), c10::OutOfMemoryError);
      EXPECT_EQ(done, 1u);
    }
    fails = false;
    numbers.exchange.sum(0, rows, true, &done);
    EXPECT_EQ(done, numbers.partition.rounds(0).size());
    EXPECT_TRUE(at::equal(numbers.mine, sum));
  });
}

TEST(Exchange, GathersRowsOfAnyLengthOnTheFirstRank) {
  on_ranks(3, [&](const SharedRanks& ranks) {
    Numbers numbers(*ranks, 5000, at::kFloat, {});
    const std::vector<int64_t> bytes{0, 7001, 12};
    const at::Tensor mine = at::full({bytes[ranks->rank()]}, ranks->rank() + 1, at::kByte);
    const at::Tensor all = gather_rows(*ranks, numbers.exchange.buffer(), mine, bytes);
    if (!ranks->leads()) {
      EXPECT_EQ(all.numel(), 0);
      return;
    }
    EXPECT_TRUE(at::equal(all, at::cat({at::full({7001}, 2, at::kByte), at::full({12}, 3, at::kByte)})));
  });
}

class Stages : public testing::TestWithParam<Numerics> {
 protected:
  Stages() {
    at::set_num_threads(1);
    config_.model = small_gpt2(2, 48, 2, 8);
    config_.data.workers = 0;
    config_.train = {.steps = 20, .batch = 16, .clip = 0.5, .numerics = GetParam(), .warmup = 1};
    config_.train.loss_scale = 0x1p22;
    config_.plan = {.micro_batch = 2, .evaluation_batch = 4};
    config_.run.nvme_least_bytes = 0;
    config_.evaluation.windows = 5;
    corpus_ = test_corpus(scratch_, config_.model);
  }

  struct OfRank : Outcome {
    uint64_t outer = 0;  // of the weights that each rank has whole at every stage
    bool operator==(const OfRank& other) const { return Outcome::operator==(other) && outer == other.outer; }
  };
  struct Trained {
    std::vector<OfRank> outcomes;  // by rank
    uint64_t bytes_sent = 0, skipped = 0;
  };
  Trained train(uint32_t size, uint32_t zero, Place optimizer, uint64_t steps) const {
    Trained trained;
    trained.outcomes.resize(size);
    std::mutex mutex;
    on_ranks(size, [&](const SharedRanks& ranks) {
      Config config = config_;
      config.run.zero = zero;
      config.plan.optimizer = optimizer;
      config.run.nvme = scratch_.file(std::to_string(ranks->rank()));
      std::filesystem::create_directories(config.run.nvme);
      PlanMoves moves(Core::get(), config.shape(), {}, config.recovery.floor);
      TrainingStep program(config, corpus_, {at::kCPU}, config.plan, Core::get(), moves, Mesh(ranks));
      RecoverableStep step(program, config.shape(), {}, config.plan, config.recovery);
      OfRank outcome;
      for (uint64_t number = 0; number < steps; ++number) {
        EXPECT_EQ(step.run(number), StepOutcome::kDone);
        outcome.losses.push_back(program.loss());
        outcome.norms.push_back(program.gradient_norm());
      }
      const uint64_t bytes_sent = ranks->bytes_sent();
      program.begin_evaluation();
      EXPECT_FALSE(program.evaluate(config.plan));
      outcome.losses.push_back(program.evaluation_loss());
      outcome.weights = program.whole_states().hash();
      outcome.outer = hash_of_outer(program);
      const std::lock_guard lock(mutex);
      trained.outcomes[ranks->rank()] = std::move(outcome);
      trained.bytes_sent = bytes_sent;
      trained.skipped = program.loss_scale().state().skipped;
    });
    return trained;
  }

  static uint64_t hash_of_outer(TrainingStep& program) {
    Parameters& parameters = program.parameters();
    return parameters.hash([&](size_t index, size_t which) {
      const bool is_outer = program.model().table()[index].layer < 0;
      return is_outer ? parameters.read_stored(index, which) : at::zeros({0});
    });
  }

  // Matrices in 8 bits have no shares of weights.
  static std::vector<uint32_t> stages_from_2() {
    if (GetParam().precision == Precision::kInt8) return {2};
    return {2, 3};
  }

  ScratchFolder scratch_;
  Config config_;
  Corpus corpus_;
};

TEST_P(Stages, HaveTheSameBits) {
  for (const uint32_t size : {2u, 3u}) {
    const uint64_t steps = size == 3 ? 20 : 6;
    const Trained whole = train(size, 0, Place::kDevice, steps),
                  shared = train(size, 1, Place::kDevice, steps);
    for (uint32_t rank = 0; rank < size; ++rank) {
      EXPECT_EQ(whole.outcomes[rank], whole.outcomes[0]) << rank;
      EXPECT_EQ(shared.outcomes[rank], whole.outcomes[0]) << size << " ranks, " << rank;
    }
    if (GetParam().precision == Precision::kFp16Mixed) {
      EXPECT_GT(whole.skipped, 0u);
      EXPECT_LT(whole.skipped, 6u);
    }
  }
}

// Each rank has one micro-batch, of 5 or 6 rows with three ranks.
TEST_P(Stages, HaveTheSameBitsInOneMicroBatch) {
  config_.plan.micro_batch = 8;
  for (const uint32_t size : {2u, 3u}) {
    const uint64_t steps = GetParam().precision == Precision::kFp16Mixed ? 5 : 2;  // of which some overflow
    const Trained whole = train(size, 0, Place::kDevice, steps);
    for (const uint32_t zero : stages_from_2()) {
      const Trained shared = train(size, zero, Place::kDevice, steps);
      for (uint32_t rank = 0; rank < size; ++rank)
        EXPECT_EQ(shared.outcomes[rank], whole.outcomes[0])
            << size << " ranks, stage " << zero << ", " << rank;
      EXPECT_EQ(shared.skipped, whole.skipped);
    }
  }
}

// Of 6, 5 and 5 rows, in two micro-batches, of which the second has two rows or one.
TEST_P(Stages, AddUpEachMicroBatchOverTheRanks) {
  config_.plan.micro_batch = 4;
  const Trained whole = train(3, 0, Place::kDevice, 2);
  std::vector<Trained> shared;
  for (const uint32_t zero : stages_from_2()) shared.push_back(train(3, zero, Place::kDevice, 2));
  for (const Trained& each : shared)
    for (uint32_t rank = 0; rank < 3; ++rank) EXPECT_EQ(each.outcomes[rank], shared[0].outcomes[0]) << rank;
  for (size_t step = 0; step < whole.outcomes[0].losses.size(); ++step)
    EXPECT_NEAR(shared[0].outcomes[0].losses[step] / whole.outcomes[0].losses[step], 1, 2e-3) << step;
}

TEST_P(Stages, HaveTheSameBitsWhereverTheStatesLie) {
  const Trained whole = train(2, 0, Place::kDevice, 3);
  for (const Place place : {Place::kHost, Place::kNvme})
    EXPECT_EQ(train(2, 1, place, 3).outcomes[0], whole.outcomes[0]) << name_of(place);
}

std::vector<Numerics> shared_numerics() {
  if (kSanitized)
    return {{Precision::kFp16Mixed, OptimizerKind::kAdamW}, {Precision::kInt8, OptimizerKind::kAdamW}};
  return {{},
          {Precision::kBf16Mixed, OptimizerKind::kAdamW8bit},
          {Precision::kFp16Mixed, OptimizerKind::kAdamW},
          {Precision::kBf16, OptimizerKind::kAdamW8bit},
          {Precision::kInt8, OptimizerKind::kAdamW},
          {Precision::kInt8, OptimizerKind::kSgd}};
}

INSTANTIATE_TEST_SUITE_P(OfNumbers, Stages, testing::ValuesIn(shared_numerics()),
                         [](const auto& info) { return case_name(info.param); });

class Volume : public Stages {
 protected:
  Volume() {
    config_.model = small_gpt2(6, 128, 2, 8);  // of which a block is little
    config_.plan.micro_batch = 8;
  }
  // Against as many numbers as a ring sends of so many: (N - 1) / N of them for each rank. What pads parts of
  // whole blocks is more.
  void expect(uint32_t size, uint32_t zero, double numbers) const {
    const double expected = numbers * 4 * (size - 1) / size;
    EXPECT_NEAR(double(train(size, zero, Place::kDevice, 1).bytes_sent) / expected, 1, 0.04)
        << size << " ranks, stage " << zero;
  }
};

// 2Ψ; and 3Ψ but for what belongs to no layer, and the last layer, which is there when the backward begins.
TEST_P(Volume, IsThatOfTheStage) {
  double all = 0, outer = 0, layer = 0;
  for (const Parameter& parameter : parameter_table(config_.model)) {
    all += double(parameter.elements());
    if (parameter.layer < 0) outer += double(parameter.elements());
    if (parameter.layer == 0) layer += double(parameter.elements());
  }
  for (const uint32_t size : {2u, 4u, 8u})
    for (const uint32_t zero : {0u, 1u, 2u, 3u})
      if (!kSanitized || (size == 2 && zero > 0))
        expect(size, zero, zero < 3 ? 2 * all : 3 * all - outer - layer);
  config_.plan.recompute = {0, 1, 2, 3, 4, 5};  // a layer is computed again and its backward follows
  expect(4, 3, 3 * all - outer - layer);
  config_.plan = {.micro_batch = 2, .evaluation_batch = 4};
  expect(4, 2, 3 * all);
}

INSTANTIATE_TEST_SUITE_P(OfNumbers, Volume, testing::Values(Numerics{}),
                         [](const auto& info) { return case_name(info.param); });

}  // namespace
}  // namespace spillway::trainer
