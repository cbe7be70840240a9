// Two ranks in two threads, over Gloo: what is added up, and how often.
#include "trainer/ranks/gradient_sums.h"

#include "tests/trainer/ranks/over_threads.h"
#include "tests/trainer/small_models.h"

namespace spillway::trainer {
namespace {

template <class Work>
void on_two_ranks(const Work& work) {
  on_ranks(2, [&](const std::shared_ptr<Ranks>& ranks) { work(*ranks); });
}

// Three parameters of two layers and one of none, with gradients of the rank.
struct SummedModel {
  explicit SummedModel(Ranks& ranks)
      : table{plain_parameter(0, {3}), plain_parameter(0, {2, 2}), plain_parameter(1, {5}),
              plain_parameter(-1, {1})},
        partition({}, table, ranks.size()),
        parameters({"a", "b", "c", "d"},
                   std::vector<at::Tensor>{at::zeros({3}), at::zeros({2, 2}), at::zeros({5}), at::zeros({1})},
                   std::vector<at::Device>(4, at::kCPU), {}, {}, {.units = {0, 0, 1, -1}}),
        exchange(ranks, partition, at::kCPU, at::kFloat),
        sums(parameters, ranks, partition, exchange, true) {
    for (size_t i = 0; i < parameters.size(); ++i)
      parameters.gradient(i).fill_(double(i + 1) * (ranks.rank() == 0 ? 1 : 10));
  }
  const std::vector<Parameter> table;
  const Partition partition;
  Parameters parameters;
  Exchange exchange;
  GradientSums sums;
};

TEST(GradientSums, AreMadeOnceAStep) {
  on_two_ranks([](Ranks& ranks) {
    const at::NoGradGuard no_grad;
    SummedModel model(ranks);
    GradientSums& sums = model.sums;
    const auto expect = [&](double factor) {
      for (size_t i = 0; i < model.parameters.size(); ++i)
        EXPECT_TRUE(model.parameters.gradient(i).eq(double(i + 1) * factor).all().item<bool>())
            << model.parameters.name(i);
    };
    sums.begin();
    EXPECT_FALSE(sums.has_begun());
    sums.add_up();
    EXPECT_TRUE(sums.has_begun());
    expect(11);
    sums.add_up();  // as after a failure in what follows
    expect(11);
    sums.begin();
    sums.add_up();
    expect(22);
  });
}

TEST(GradientSums, OfADrainingRankAreMadeByTheOthersAsEver) {
  on_two_ranks([](Ranks& ranks) {
    const at::NoGradGuard no_grad;
    SummedModel model(ranks);
    GradientSums& sums = model.sums;
    sums.begin();
    ranks.leads() ? sums.drain() : sums.add_up();
    EXPECT_TRUE(sums.has_begun());
    EXPECT_EQ(ranks.sum(1), 2) << "no rank has a round more";
    sums.begin();
    for (size_t i = 0; i < model.parameters.size(); ++i) model.parameters.gradient(i).fill_(1);
    sums.add_up();
    EXPECT_TRUE(model.parameters.gradient(2).eq(2).all().item<bool>());
  });
}

TEST(Ranks, AloneCommunicatesWithNobody) {
  Ranks alone;
  EXPECT_EQ(alone.sum(3), 3);
  EXPECT_EQ(alone.decide("mine", [](const auto& all) { return all.at(0) + "!"; }), "mine!");
  alone.check_same("anything", "goes");
  const at::Tensor one = at::ones({2});
  alone.reduce_scatter(one);
  alone.all_gather(one);
  EXPECT_TRUE(one.eq(1).all().item<bool>());
  alone.leave();
}

TEST(Ranks, SharesOfABatchAreInOrderAndNearlyEqual) {
  on_two_ranks([](const Ranks& ranks) {
    const Ranks::Share five = ranks.share_of(5), one = ranks.share_of(1);
    EXPECT_EQ(five.first, ranks.leads() ? 0u : 3u);
    EXPECT_EQ(five.count, ranks.leads() ? 3u : 2u);
    EXPECT_EQ(one.count, ranks.leads() ? 1u : 0u);
  });
}

TEST(Ranks, DecideByTheWordsOfAll) {
  on_ranks(3, [](const std::shared_ptr<Ranks>& ranks) {
    for (int round = 0; round < 3; ++round) {
      const auto joined = [&](const std::vector<std::string>& all) {
        EXPECT_TRUE(ranks->leads());
        return all.at(0) + all.at(1) + all.at(2) + std::to_string(round);
      };
      EXPECT_EQ(ranks->decide(std::string(1, char('a' + ranks->rank())), joined),
                "abc" + std::to_string(round));
    }
  });
}

TEST(Ranks, WhatDiffersIsNamedOnAll) {
  on_two_ranks([](Ranks& ranks) {
    ranks.check_same("first", "x = 1\ny = 2\n");
    try {
      ranks.check_same("settings", std::string("x = 1\ny = ") + (ranks.leads() ? "2" : "3") + "\nz = 4\n");
      ADD_FAILURE() << "they differ";
    } catch (const RanksError& error) {
      EXPECT_STREQ(error.what(),
                   "rank 0 and rank 1 do not go together, their settings differ: 'y = 2' and 'y = 3'");
    }
  });
}

}  // namespace
}  // namespace spillway::trainer
