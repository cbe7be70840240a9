// Ranks as threads of one process, over Gloo. They share LibTorch's generator: models without dropout.
#pragma once
#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <thread>

#include "trainer/ranks/ranks.h"

namespace spillway::trainer {

inline uint16_t free_port() {
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

// `work(ranks)` on each of so many ranks, whose Ranks it gets as a shared pointer.
template <class Work>
void on_ranks(uint32_t size, const Work& work) {
  constexpr std::chrono::seconds kTimeout{60};
  const uint16_t port = free_port();
  const auto rank = [&](uint32_t number) {
    const Launch launch{.rank = number,
                        .size = size,
                        .local_rank = number,
                        .local_size = size,
                        .address = "127.0.0.1",
                        .port = port};
    const auto ranks = std::make_shared<Ranks>(launch, at::kCPU, RanksTimes{.timeout = kTimeout});
    work(ranks);
    ranks->leave();
  };
  std::vector<std::thread> others;
  for (uint32_t number = 1; number < size; ++number) others.emplace_back(rank, number);
  rank(0);
  for (std::thread& other : others) other.join();
}

}  // namespace spillway::trainer
