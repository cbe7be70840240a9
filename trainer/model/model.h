// The model that is trained, as functions of parameters that the trainer owns.
//
// A row holds one example, as token ids: of a decoder's model context + 1 tokens of text, of T5 the encoder's
// `context` tokens and then the targets, each with kPadding behind it where examples are pairs. Rows are on
// the device of the parameters that belong to no layer; a layer runs on the device that its parameters are
// on.
//
// Thread-safety: immutable after it is made. Ownership: parameters are borrowed; the model and the list of
// them must outlive a backward. Errors: LibTorch's exceptions.
#pragma once
#include <cstdint>

#include "trainer/model/forward.h"
#include "trainer/model/head.h"
#include "trainer/model/initial_values.h"
#include "trainer/plan/parameters/parameter_table.h"

namespace spillway::trainer {

class Model {
 public:
  // `stage`: of a pipeline over ranks, whose layers are computed. REQUIRES of several: a decoder's model.
  explicit Model(const Architecture& architecture, const Stage& stage = {});

  const Architecture& architecture() const { return architecture_; }
  // Empty where other stages have a parameter.
  const std::vector<Parameter>& table() const { return table_; }
  const Stage& stage() const { return stage_; }
  // Of a layer's parameters in the table.
  size_t first_of(uint32_t layer) const { return keys_.layers[layer].first; }
  size_t count_of(uint32_t layer) const { return keys_.layers[layer].count; }

  // Weights from `seed` alone, of all stages, in host memory; outlives the model.
  InitialValues initial_values(uint64_t seed) const;
  std::vector<at::Tensor> initial_parameters(uint64_t seed) const;

  // The sum of the cross-entropies of all targets that are no padding. Of the plan counts what is computed
  // again, and the chunks; where there is a `host`, also what goes there.
  at::Tensor loss_sum(const Weights& parameters, const at::Tensor& rows, const Plan& plan, bool training,
                      const std::shared_ptr<ActivationHost>& host = nullptr) const;
  // The same in training, as a passage that stops between `pieces`, if there are some. All that it is given
  // must outlive it, but the rows and the input. A stage behind the first one is given an input, [rows,
  // context, width]; one before the last has x of the same sizes in the place of the loss.
  Passage<at::Tensor> loss_in_pieces(const Weights& parameters, at::Tensor rows, const Plan& plan,
                                     Pieces* pieces, const std::shared_ptr<ActivationHost>& host,
                                     at::Tensor input = {}) const;
  // The same for each row, without autograd and dropout: [rows].
  at::Tensor row_losses(const Weights& parameters, const at::Tensor& rows, const Plan& plan,
                        const at::Tensor& input = {}) const;
  // [rows, target tokens, vocabulary], without dropout.
  at::Tensor logits(const Weights& parameters, const at::Tensor& rows) const;

 private:
  Forward forward_of(const Weights& parameters, const Plan& plan, bool training,
                     const std::shared_ptr<ActivationHost>& host) const;
  Passage<at::Tensor> loss_of(Forward forward, at::Tensor rows) const;
  Passage<Head> head_of(const Forward& forward, const at::Tensor& rows) const;
  at::Tensor targets_of(const at::Tensor& rows) const;  // [rows, target tokens]

  const Architecture architecture_;
  const Stage stage_;
  const std::vector<Parameter> table_;
  const ParameterKeys keys_;
};

}  // namespace spillway::trainer
