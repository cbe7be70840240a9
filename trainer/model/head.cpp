#include "trainer/model/head.h"

#include "trainer/data/tokens.h"

namespace spillway::trainer {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

// Of a chunk's tokens, [tokens, 1] each: the ids, and where they are padding, if any can be.
struct Targets {
  Targets(const at::Tensor& targets, bool padded)
      : ids(padded ? targets.clamp_min(0) : targets), padding(padded ? targets.lt(0) : at::Tensor()) {}
  // Rows of the padding to zero.
  void clear(at::Tensor& rows) const {
    if (padding.defined()) rows.masked_fill_(padding, 0);
  }
  at::Tensor ids, padding;
};

// The cross-entropies [tokens, 1] of the targets. The logits [tokens, vocabulary] become the shares of their
// softmax.
at::Tensor losses_in_place(at::Tensor& logits, const Targets& targets) {
  logits.sub_(logits.amax(1, true));
  const at::Tensor chosen = logits.gather(1, targets.ids);
  at::Tensor sums = logits.exp_().sum(1, true);
  logits.div_(sums);
  at::Tensor losses = sums.log_().sub_(chosen);
  targets.clear(losses);
  return losses;
}

class ChunkedLoss : public torch::autograd::Function<ChunkedLoss> {
 public:
  static at::Tensor forward(AutogradContext* context, const at::Tensor& hidden, const at::Tensor& weight,
                            const at::Tensor& targets, int64_t chunks, bool padded) {
    at::Tensor of_hidden = at::empty_like(hidden), of_weight = at::zeros_like(weight);
    at::Tensor sum = at::zeros({}, hidden.options().dtype(at::kFloat));
    const auto hiddens = hidden.chunk(chunks), wanted = targets.chunk(chunks);
    auto gradients = of_hidden.chunk(chunks);
    for (size_t i = 0; i < hiddens.size(); ++i) {
      at::Tensor logits = at::linear(hiddens[i], weight).to(at::kFloat);
      const Targets chunk(wanted[i], padded);
      sum += losses_in_place(logits, chunk).sum();
      // The gradient of the loss: the shares, and one less where the target is.
      logits.scatter_(1, chunk.ids, logits.gather(1, chunk.ids) - 1);
      chunk.clear(logits);
      const at::Tensor slope = logits.to(weight.scalar_type());
      at::mm_out(gradients[i], slope, weight);
      of_weight.addmm_(slope.t(), hiddens[i]);
    }
    context->saved_data["hidden"] = std::move(of_hidden);
    context->saved_data["weight"] = std::move(of_weight);
    return sum;
  }

  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    // Scaled in place: nobody else reads them, and there is no second backward.
    variable_list scaled{context->saved_data.at("hidden").toTensor().mul_(gradients[0]),
                         context->saved_data.at("weight").toTensor().mul_(gradients[0])};
    context->saved_data.clear();
    scaled.resize(5);  // targets, chunks and whether there is padding have no gradient
    return scaled;
  }
};

}  // namespace

at::Tensor summed_loss(const Head& head, const at::Tensor& targets, uint32_t chunks) {
  if (chunks > 1)
    return ChunkedLoss::apply(head.hidden.flatten(0, 1), head.weight, targets.reshape({-1, 1}),
                              int64_t{chunks}, head.padded);
  const at::Tensor logits = head.logits();
  return at::cross_entropy_loss(logits.flatten(0, 1).to(at::kFloat), targets.reshape(-1), {},
                                at::Reduction::Sum, kPadding);
}

at::Tensor losses_by_row(const Head& head, const at::Tensor& targets, uint32_t chunks) {
  const at::NoGradGuard no_grad;
  const auto hiddens = head.hidden.flatten(0, 1).chunk(chunks),
             wanted = targets.reshape({-1, 1}).chunk(chunks);
  std::vector<at::Tensor> losses;
  for (size_t i = 0; i < hiddens.size(); ++i) {
    at::Tensor logits = at::linear(hiddens[i], head.weight).to(at::kFloat);
    losses.push_back(losses_in_place(logits, Targets(wanted[i], head.padded)));
  }
  return at::cat(losses).view({targets.size(0), -1}).sum(1);
}

}  // namespace spillway::trainer
