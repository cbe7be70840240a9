// Two ranks in two threads, over Gloo: what is added up, and how often.
#include "trainer/ranks/gradient_sums.h"

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <thread>

namespace spillway::trainer {
namespace {

constexpr std::chrono::seconds kTimeout{60};

uint16_t free_port() {
  const int one = ::socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t length = sizeof address;
  EXPECT_EQ(::bind(one, reinterpret_cast<sockaddr*>(&address), length), 0);
  EXPECT_EQ(::getsockname(one, reinterpret_cast<sockaddr*>(&address), &length), 0);
  ::close(one);
  return ntohs(address.sin_port);
}

// `work` on each of two ranks.
template <class Work>
void on_two_ranks(const Work& work) {
  const uint16_t port = free_port();
  const auto rank = [&](uint32_t number) {
    Ranks ranks({.rank = number,
                 .size = 2,
                 .local_rank = number,
                 .local_size = 2,
                 .address = "127.0.0.1",
                 .port = port},
                at::kCPU, {.timeout = kTimeout});
    work(ranks);
    ranks.leave();
  };
  std::thread second(rank, 1);
  rank(0);
  second.join();
}

// Three parameters of two layers and one of none, with gradients of the rank.
struct Model {
  explicit Model(const Ranks& ranks)
      : parameters({"a", "b", "c", "d"},
                   std::vector<at::Tensor>{at::zeros({3}), at::zeros({2, 2}), at::zeros({5}), at::zeros({1})},
                   {at::kCPU, at::kCPU, at::kCPU, at::kCPU}) {
    for (size_t i = 0; i < parameters.size(); ++i)
      parameters.gradient(i).fill_(double(i + 1) * (ranks.rank() == 0 ? 1 : 10));
  }
  Parameters parameters;
  const std::vector<int> layers{0, 0, 1, -1};
};

TEST(GradientSums, AreMadeOnceAStep) {
  on_two_ranks([](Ranks& ranks) {
    const at::NoGradGuard no_grad;
    Model model(ranks);
    GradientSums sums(model.parameters, ranks, model.layers);
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

TEST(Ranks, AloneCommunicatesWithNobody) {
  Ranks alone;
  EXPECT_EQ(alone.sum(3), 3);
  alone.check_same("anything", "goes");
  const at::Tensor one = at::ones({2});
  alone.add_up({one});
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
