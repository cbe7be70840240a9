// reference_dump CONFIG.toml OUT.safetensors: what a training by that configuration sees, for another program
// to do the same: the rows of every step ("rows", [steps, batch, row tokens]) and the logits of the first
// batch under the initial weights ("logits").
#include <cstdio>

#include "trainer/checkpoint/tensor_item.h"
#include "trainer/config/config.h"
#include "trainer/data/examples.h"
#include "trainer/pretrained/parameters.h"

namespace spillway::trainer {
namespace {

at::Tensor rows_of(const Config& config, const Corpus& corpus) {
  const Examples examples(corpus, config.model);
  const auto steps = static_cast<int64_t>(config.train.steps);
  at::Tensor rows = at::empty({steps, config.train.batch, examples.row_tokens()}, at::kLong);
  const auto each = static_cast<size_t>(rows.numel() / steps);
  for (int64_t step = 0; step < steps; ++step)
    examples.draw(config.data.seed, uint64_t(step) * config.train.batch, config.train.batch,
                  {rows.mutable_data_ptr<int64_t>() + size_t(step) * each, each});
  return rows;
}

bool dump(const std::string& from, const std::string& to, std::string* error) {
  const auto config = read_config(from, {}, error);
  if (!config) return false;
  const auto corpus = Corpus::open(config->data.corpus, config->data.validation,
                                   Examples::window_tokens(config->model), error);
  if (!corpus) return false;
  const Model model(config->model);
  const auto weights = open_weights(config->pretrained, model, error);
  if (!weights) return false;
  const at::Tensor rows = rows_of(*config, *corpus);
  const at::Tensor logits = model.logits(parameters_of(*weights, model), rows[0]);
  return safetensors::write(to, {item_of("rows", rows), item_of("logits", logits)}, {}, error);
}

}  // namespace
}  // namespace spillway::trainer

int main(int count, char** arguments) {
  std::string error = "usage: reference_dump CONFIG.toml OUT.safetensors";
  if (count == 3 && spillway::trainer::dump(arguments[1], arguments[2], &error)) return 0;
  std::fprintf(stderr, "%s\n", error.c_str());
  return 1;
}
