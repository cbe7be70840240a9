// One rank as a process: nccl_rank SCENARIO RANK RANKS ID_IN_HEX. Says what happened on stdout and with its
// exit code.
#include <unistd.h>

#include <csignal>
#include <cstdio>

#include "tests/nccl/ranks.h"

namespace spillway::nccl_test {
namespace {

ncclUniqueId from_hex(const char* text) {
  ncclUniqueId id = {};
  for (size_t i = 0; i < sizeof id.internal; ++i) {
    unsigned value = 0;
    if (std::sscanf(text + 2 * i, "%2x", &value) != 1) std::_Exit(9);
    id.internal[i] = static_cast<char>(value);
  }
  return id;
}

int run(const std::string& scenario, Rank& rank, const ncclUniqueId& id) {
  const bool victim = rank.number == rank.count - 1;
  if (scenario == "makes_an_id") return unique_id().internal[0] == id.internal[0] ? 0 : 1;
  if (ncclCommInitRank(&rank.comm, rank.count, id, rank.number) != ncclSuccess) {
    std::printf("init: %s\n", ncclGetLastError(nullptr));
    return 3;
  }
  float* buffer = nullptr;
  if (cudaMalloc(reinterpret_cast<void**>(&buffer), 64) != cudaSuccess) return 4;
  const float mine = static_cast<float>(rank.number + 1);
  cudaMemcpy(buffer, &mine, sizeof mine, cudaMemcpyHostToDevice);
  for (int i = 0; i < 3; ++i) {
    if (scenario == "dies" && victim && i == 1) raise(SIGKILL);
    if (ncclAllReduce(buffer, buffer, 1, ncclFloat32, ncclSum, rank.comm, nullptr) != ncclSuccess) return 5;
    if (cudaStreamSynchronize(nullptr) != cudaSuccess) {
      std::printf("%d: %s\n", rank.state(), ncclGetLastError(nullptr));
      return 6;
    }
  }
  float result = 0;
  cudaMemcpy(&result, buffer, sizeof result, cudaMemcpyDeviceToHost);
  std::printf("%g violations '%s'\n", result, violations().c_str());
  if (scenario == "ends_without_destroying") return 0;
  return ncclCommDestroy(rank.comm) == ncclSuccess ? 0 : 7;
}

}  // namespace
}  // namespace spillway::nccl_test

int main(int argc, char** argv) {
  using namespace spillway::nccl_test;
  if (argc != 5) return 8;
  Rank rank{.number = std::atoi(argv[2]), .count = std::atoi(argv[3])};
  if (cudaSetDevice(rank.number) != cudaSuccess) return 2;
  const int status = run(argv[1], rank, from_hex(argv[4]));
  std::fflush(nullptr);
  return status;
}
