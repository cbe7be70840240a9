// The model against the same mathematics written out in plain operations, in double precision, with the mask
// as a matrix: the loss of each sequence, the sum, and every parameter's gradient.
#include "trainer/model/model.h"

#include <gtest/gtest.h>

#include <ATen/Parallel.h>

#include <cmath>

#include "tests/trainer/small_models.h"

namespace spillway::trainer {
namespace {

const Architecture kModel = small_gpt2(2, 24, 3, 10);
constexpr int64_t kSequences = 3;

at::Tensor normalised(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias) {
  const at::Tensor centred = x - x.mean({-1}, true);
  return centred / (centred.square().mean({-1}, true) + 1e-5).sqrt() * weight + bias;
}

at::Tensor product(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias) {
  return x.matmul(weight) + bias;
}

// One head at a time; a position sees itself and what comes before it.
at::Tensor attended(const at::Tensor& x, at::TensorList p) {
  const int64_t width = x.size(2), head = width / kModel.heads, tokens = x.size(1);
  const at::Tensor all = product(x, p[0], p[1]);
  const at::Tensor hidden = at::ones({tokens, tokens}, at::kBool).triu(1);
  std::vector<at::Tensor> heads;
  for (int64_t from = 0; from < width; from += head) {
    const at::Tensor query = all.narrow(2, from, head), key = all.narrow(2, width + from, head),
                     value = all.narrow(2, 2 * width + from, head);
    const at::Tensor scores = query.matmul(key.transpose(1, 2)) / std::sqrt(double(head));
    heads.push_back(at::softmax(scores.masked_fill(hidden, -INFINITY), 2).matmul(value));
  }
  return product(at::cat(heads, 2), p[2], p[3]);
}

at::Tensor activated(const at::Tensor& x) {
  return 0.5 * x * (1 + at::tanh(std::sqrt(2 / M_PI) * (x + 0.044715 * x.pow(3))));
}

// Of each sequence.
at::Tensor losses(at::TensorList p, const at::Tensor& tokens) {
  const int64_t context = kModel.context;
  const at::Tensor inputs = tokens.slice(1, 0, context), targets = tokens.slice(1, 1, context + 1);
  at::Tensor x = p[0].index_select(0, inputs.reshape(-1)).view({tokens.size(0), context, -1}) + p[1];
  for (uint32_t layer = 0; layer < kModel.layers; ++layer) {
    const at::TensorList of = p.slice(4 + 12 * layer, 12);
    x = x + attended(normalised(x, of[0], of[1]), of.slice(2, 4));
    x = x + product(activated(product(normalised(x, of[6], of[7]), of[8], of[9])), of[10], of[11]);
  }
  const at::Tensor logits = normalised(x, p[2], p[3]).matmul(p[0].transpose(0, 1));
  const at::Tensor chances = logits - at::logsumexp(logits, {2}, true);
  return -chances.gather(2, targets.unsqueeze(2)).sum({1, 2});
}

std::vector<at::Tensor> copied(const std::vector<at::Tensor>& from, at::ScalarType type) {
  std::vector<at::Tensor> to;
  to.reserve(from.size());
  for (const at::Tensor& tensor : from) to.push_back(tensor.to(type, false, true).requires_grad_(true));
  return to;
}

void expect_near(const at::Tensor& actual, const at::Tensor& expected, const std::string& what) {
  const at::Tensor off = (actual.detach().to(at::kDouble) - expected.detach()).abs().max();
  const double scale = expected.detach().abs().max().item().toDouble();
  EXPECT_LE(off.item().toDouble(), 2e-5 * scale + 1e-7) << what << ", of " << scale;
}

class Gpt2 : public testing::Test {
 protected:
  Gpt2() {
    at::set_num_threads(1);
    at::manual_seed(7);
    // Larger than at the start of a training, so that norms, biases and attention matter.
    for (const at::Tensor& tensor : model_.initial_parameters(3))
      initial_.push_back(tensor + 0.2 * at::randn(tensor.sizes()));
    tokens_ = at::randint(kModel.vocabulary, {kSequences, kModel.context + 1}, at::kLong);
  }
  const Model model_{kModel};
  std::vector<at::Tensor> initial_;
  at::Tensor tokens_;
};

TEST_F(Gpt2, GivesTheLossesOfPlainOperationsWithAnExplicitMask) {
  const at::Tensor expected = losses(copied(initial_, at::kDouble), tokens_);
  for (const Plan& plan : {Plan{}, Plan{.head_chunks = 4}}) {
    expect_near(model_.row_losses(initial_, tokens_, plan), expected, "losses");
    expect_near(model_.loss_sum(initial_, tokens_, plan, true), expected.sum(), "their sum");
  }
}

TEST_F(Gpt2, GivesTheGradientsOfPlainOperationsWithAnExplicitMask) {
  const std::vector<at::Tensor> reference = copied(initial_, at::kDouble);
  const auto expected = torch::autograd::grad({losses(reference, tokens_).sum()}, reference);
  for (const Plan& plan : {Plan{}, Plan{.recompute = {1}}, Plan{.head_chunks = 4}}) {
    const std::vector<at::Tensor> parameters = copied(initial_, at::kFloat);
    torch::autograd::backward({model_.loss_sum(parameters, tokens_, plan, true)});
    for (size_t i = 0; i < parameters.size(); ++i)
      expect_near(parameters[i].grad(), expected[i], model_.table()[i].name + " under " + to_string(plan));
  }
}

TEST_F(Gpt2, AWeightIsTheSameInWhateverOrderTheyAreAskedFor) {
  const std::vector<at::Tensor> all = model_.initial_parameters(3);
  const InitialValues one_by_one = model_.initial_values(3);
  for (const size_t index : {size_t{2}, size_t{0}, all.size() - 1, size_t{1}, size_t{1}})
    EXPECT_TRUE(at::equal(one_by_one[index], all[index])) << index;
}

TEST_F(Gpt2, StartsWithSmallWeightsAndSmallerOnesWhereTheyAddToTheResidual) {
  const Model model(small_gpt2(8, 64, 2, 64));
  const std::vector<at::Tensor> initial = model.initial_parameters(5);
  for (size_t i = 0; i < initial.size(); ++i) {
    const std::string& name = model.table()[i].name;
    const bool adds = name.ends_with("c_proj.weight"),
               norm = initial[i].dim() == 1 && name.ends_with("weight");
    const double expected = initial[i].dim() == 1 ? 0
                            : adds                ? 0.02 / 4
                                                  : 0.02;  // the square root of two a layer
    EXPECT_NEAR(initial[i].std().item().toDouble(), expected, 0.1 * expected) << name;
    EXPECT_NEAR(initial[i].mean().item().toDouble(), norm ? 1 : 0, 0.1 * expected) << name;
  }
}

}  // namespace
}  // namespace spillway::trainer
