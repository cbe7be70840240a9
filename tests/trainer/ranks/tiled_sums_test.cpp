// Ranks of which one has its matrices in tiles, and the other one whole: the same sums.
#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <thread>

#include "tests/trainer/simulated.h"
#include "trainer/plan/parameters/parameter_table.h"
#include "trainer/ranks/gradient_sums.h"

namespace spillway::trainer {
namespace {

// Gloo, for tensors of a simulated card.
class RanksOverTheHost : public Ranks {
 public:
  using Ranks::Ranks;
  void add_up(std::vector<at::Tensor> tensors) override {
    std::vector<at::Tensor> here;
    for (const at::Tensor& tensor : tensors) here.push_back(tensor.cpu());
    Ranks::add_up(here);
    for (size_t i = 0; i < tensors.size(); ++i) tensors[i].copy_(here[i]);
    ++buckets;
  }
  int buckets = 0;
};

class TiledSums : public Simulated {
 protected:
  struct Made {
    std::vector<at::Tensor> gradients;
    int buckets = 0;
  };

  static uint16_t port_of_none() {
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

  Residence residence(uint32_t tiles) const {
    const std::vector<Parameter> table = parameter_table(config_.model);
    return {.units = units_of(table),
            .values = Place::kHost,
            .gradients = Place::kHost,
            .nvme = {},
            .tiles = tiles,
            .table = table,
            .layout = MatrixLayout::kInOut};
  }

  // What a rank has after the sum: each number is its position and the parameter's, times the rank's factor.
  Made on_rank(uint32_t rank, uint16_t port, uint32_t tiles) const {
    const at::NoGradGuard no_grad;
    const at::Device device(at::kCUDA, at::DeviceIndex(rank));
    const c10::DeviceGuard guard(device);
    RanksOverTheHost ranks(
        {.rank = rank, .size = 2, .local_rank = rank, .local_size = 2, .address = "127.0.0.1", .port = port},
        at::kCPU, std::chrono::seconds(60));
    ranks.buckets = 0;
    const Residence where = residence(tiles);
    std::vector<std::string> names;
    std::vector<at::Tensor> initial;
    for (const Parameter& parameter : where.table)
      names.push_back(parameter.name), initial.push_back(at::zeros(parameter.sizes));
    Parameters parameters(names, initial, std::vector<at::Device>(names.size(), device), {}, {}, where);
    const auto over_all = [&](Parameters::Walk kind, const auto& visit) {
      parameters.walk(kind, [&](size_t i) {
        parameters.for_each_run(
            i, 0, parameters.value(i).numel(),
            [&](const TiledMatrix::Run& run, int64_t begin) { visit(i, run.gradient, begin); });
      });
    };
    over_all(Parameters::Walk::kChangeGradients, [&](size_t i, const at::Tensor& gradient, int64_t begin) {
      const at::Tensor positions = at::arange(begin, begin + gradient.numel()).remainder(1000).to(at::kFloat);
      gradient.copy_((positions + double(i)).mul(rank == 0 ? 1 : 10));
    });
    GradientSums sums(parameters, ranks, where.units);
    sums.begin();
    sums.add_up();
    sums.add_up();  // as after a failure in what follows
    Made made{.gradients = {}, .buckets = ranks.buckets};
    for (const at::Tensor& each : initial) made.gradients.push_back(at::zeros({each.numel()}));
    over_all(Parameters::Walk::kReadGradients, [&](size_t i, const at::Tensor& gradient, int64_t begin) {
      made.gradients[i].narrow(0, begin, gradient.numel()).copy_(gradient);
    });
    ranks.leave();
    return made;
  }
};

TEST_F(TiledSums, AreThoseOfWholeMatrices) {
  config_.model = small_gpt2(1, 1024, 2, 8);  // matrices of 16 MiB, with others and alone in a bucket
  config_.model.hidden = 8192;                // and of 32, in two
  const uint16_t port = port_of_none();
  Made whole;
  std::thread second([&] { whole = on_rank(1, port, 1); });
  const Made tiled = on_rank(0, port, 8);
  second.join();
  EXPECT_EQ(tiled.buckets, whole.buckets);
  ASSERT_EQ(tiled.gradients.size(), whole.gradients.size());
  for (size_t i = 0; i < tiled.gradients.size(); ++i) {
    const at::Tensor& sums = tiled.gradients[i];
    const at::Tensor expected = (at::arange(sums.numel()).remainder(1000).to(at::kFloat) + double(i)).mul(11);
    EXPECT_TRUE(sums.equal(expected)) << i;
    EXPECT_TRUE(whole.gradients[i].equal(expected)) << i;
  }
  EXPECT_EQ(violations(), "");
}

}  // namespace
}  // namespace spillway::trainer
