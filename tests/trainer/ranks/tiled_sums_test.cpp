// Ranks of which one has its matrices in tiles, and the other one whole: the same sums.
#include "tests/trainer/ranks/over_threads.h"
#include "tests/trainer/simulated.h"
#include "trainer/plan/parameters/parameter_table.h"
#include "trainer/ranks/gradient_sums.h"

namespace spillway::trainer {
namespace {

// Gloo, for tensors of a simulated card.
class RanksOverTheHost : public Ranks {
 public:
  using Ranks::Ranks;
  void reduce_scatter(const at::Tensor& flat) override {
    const at::Tensor here = flat.cpu();
    Ranks::reduce_scatter(here);
    flat.copy_(here);
    ++rounds;
  }
  void all_gather(const at::Tensor& flat) override {
    const at::Tensor here = flat.cpu();
    Ranks::all_gather(here);
    flat.copy_(here);
  }
  int rounds = 0;
};

class TiledSums : public Simulated {
 protected:
  struct Made {
    std::vector<at::Tensor> gradients;
    int rounds = 0;
  };

  Residence residence(uint32_t tiles) const {
    const std::vector<Parameter> table = parameter_table(config_.model);
    return {.units = units_of(table),
            .values = Place::kHost,
            .gradients = Place::kHost,
            .homes = {},
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
        at::kCPU, RanksTimes{});
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
    const Partition partition({}, where.table, ranks.size());
    Exchange exchange(ranks, partition, device, at::kFloat);
    GradientSums sums(parameters, ranks, partition, exchange, true);
    sums.begin();
    sums.add_up();
    sums.add_up();  // as after a failure in what follows
    Made made{.gradients = {}, .rounds = ranks.rounds};
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
  const uint16_t port = free_port();
  Made whole;
  std::thread second([&] { whole = on_rank(1, port, 1); });
  const Made tiled = on_rank(0, port, 8);
  second.join();
  EXPECT_EQ(tiled.rounds, whole.rounds);
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
