// What many ranks need by the estimate: a step's time, what of the exchange is hidden, what a rank sends.
//
//   bench_ranks step FAMILY LAYERS WIDTH HEADS CONTEXT VOCABULARY ROWS RANKS ZERO OPTIMIZER PRECISION [PLAN]
//   bench_ranks table    up to 1,024 ranks of A100s
//
// `step` is of one micro-batch, unless PLAN says otherwise (TOML, as a configuration has it), and has the
// rates of the simulator's profiles `typical` and `timed-kernels` and of its NCCL; the table those of
// machines with eight A100s, NVLink and a link of 200 Gbit/s for each card (trainer/plan/ranks).
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <string>

#include "trainer/plan/parameters/parameter_table.h"
#include "trainer/plan/ranks/exchange_time.h"

namespace {

using namespace spillway::trainer;

Machine simulated() {
  Machine machine;
  machine.flops = 312e12, machine.memory_bytes_per_second = 1300e9, machine.launch_seconds = 5e-6;
  machine.host_bytes_per_second = 25e9;
  machine.host_memory_bytes_per_second = 1e15;  // the virtual clock does not count what a processor computes
  machine.rank_links = {
      .bytes_per_second = 12e9, .ranks_per_machine = 0, .protocols = {{.call_seconds = 10e-6}}};
  return machine;
}

int step(char** words, const char* plan_text) {
  const auto size = [&](int at) { return uint32_t(std::strtoul(words[at], nullptr, 10)); };
  const auto family = family_of(words[0]);
  const auto optimizer = optimizer_of(words[9]);
  const auto precision = precision_of(words[10]);
  if (!family || !optimizer || !precision) return 2;
  Shape shape{.model = Architecture::usual(*family, size(1), size(2), size(3), size(4)),
              .batch = size(6),
              .numerics = {.precision = *precision, .optimizer = *optimizer}};
  shape.model.vocabulary = size(5);
  shape.ranks = size(7), shape.zero = size(8);
  std::string error;
  const auto plan = parse_plan(plan_text, shape.layers(), {.micro_batch = shape.batch}, &error);
  if (!plan) return std::fprintf(stderr, "bench_ranks: %s\n", error.c_str()), 2;
  const Estimate needed = estimate(shape, *plan, simulated());
  const StepTime& time = needed.time;
  std::printf(
      "{\"seconds\": %.9f, \"passes\": %.9f, \"optimizer\": %.9f, \"shown\": %.9f, \"hidden\": %.9f, "
      "\"sent\": %llu}\n",
      time.seconds(), time.passes(), time.optimizer, time.ranks, time.ranks_hidden,
      static_cast<unsigned long long>(needed.sent_bytes));
  return 0;
}

// Llama 3 8B in mixed precision: 2,048 tokens a row, and layers that are computed again.
Shape llama(uint32_t rows, uint32_t ranks, uint32_t zero) {
  Architecture model = Architecture::usual(Family::kLlama, 32, 4096, 32, 2048);
  model.key_value_heads = 8, model.hidden = 14336, model.vocabulary = 128256, model.tied_head = false;
  return {.model = model,
          .batch = rows,
          .numerics = {.precision = Precision::kBf16Mixed},
          .ranks = ranks,
          .zero = zero};
}

// As `spillway plan --gpu a100-80gb` takes it.
Machine a100s() {
  Machine machine;
  machine.flops = 0.75 * 312e12, machine.memory_bytes_per_second = 0.85 * 2039e9;
  machine.rank_links.bytes_per_second = 250e9;
  return machine;
}

Estimate estimate_of(uint32_t rows, uint32_t ranks, uint32_t zero) {
  const Shape shape = llama(rows, ranks, zero);
  Plan plan{.micro_batch = std::min(rows, 4u)};
  for (uint32_t layer = 0; layer < shape.layers(); ++layer) plan.recompute.insert(layer);
  return estimate(shape, plan, a100s());
}

void row(const char* scaling, uint32_t rows, uint32_t ranks, uint32_t zero, double alone) {
  const Estimate needed = estimate_of(rows, ranks, zero);
  const StepTime& time = needed.time;
  const double all = time.ranks + time.ranks_hidden;
  std::printf("| %s | %u | %u | %u | %.1f | %.3f | %.3f | %.0f%% | %.0f%% |\n", scaling, ranks, zero, rows,
              double(needed.sent_bytes) / 1e9, time.seconds(), all,
              all > 0 ? 100 * time.ranks_hidden / all : 0, 100 * alone / time.seconds());
}

int table() {
  std::puts(
      "| scaling | ranks | stage | rows a rank | GB sent | step, s | exchange, s | hidden | efficiency |");
  std::puts("|---|---|---|---|---|---|---|---|---|");
  const auto alone = [](uint32_t rows) { return estimate_of(rows, 1, 0).time.seconds(); };
  for (const uint32_t zero : {0, 1, 2, 3})
    for (const uint32_t ranks : {8, 16, 64, 256, 1024}) row("weak", 8, ranks, zero, alone(8));
  for (const uint32_t ranks : {16, 64, 256, 1024}) row("strong", 4096 / ranks, ranks, 1, alone(4096 / ranks));
  std::puts(
      "\n| ranks | 25 MiB reduced and scattered, and gathered, over rings, ms | all-reduced over trees, ms "
      "|");
  std::puts("|---|---|---|");
  const RankLinks links = a100s().rank_links;
  for (const uint32_t ranks : {8, 16, 64, 256, 1024})
    std::printf("| %u | %.2f | %.2f |\n", ranks, 2e3 * ring_seconds(links, ranks, 25 << 20),
                1e3 * tree_seconds(links, ranks, 25 << 20));
  return 0;
}

}  // namespace

int main(int count, char** words) {
  if (count == 2 && std::string(words[1]) == "table") return table();
  if (count >= 13 && count <= 14 && std::string(words[1]) == "step")
    return step(words + 2, count == 14 ? words[13] : "");
  std::fputs(
      "bench_ranks step FAMILY LAYERS WIDTH HEADS CONTEXT VOCABULARY ROWS RANKS ZERO OPTIMIZER PRECISION "
      "[PLAN] | table\n",
      stderr);
  return 2;
}
