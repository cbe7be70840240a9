// A pre-LN GPT with learned positions, GELU and a tied head, as functions of parameters that the trainer
// owns.
//
// Thread-safety: functions without state. Ownership: parameters are borrowed. A layer runs on the device that
// its parameters are on; embedding and head run on the first's. Errors: LibTorch's exceptions.
#pragma once
#include <cstdint>

#include "trainer/config/config.h"
#include "trainer/libtorch.h"

namespace spillway::trainer::gpt {

// The order of the parameters: token and position embedding, twelve a layer, the last norm's two.
inline constexpr size_t kPerLayer = 12, kBeforeLayers = 2;

std::vector<std::string> parameter_names(const ModelConfig& model);
// The layer that parameter `index` belongs to; -1: embeddings and the last norm, which stay on the first
// device.
int layer_of(size_t index, const ModelConfig& model);
// Weights from `seed` alone, in host memory.
std::vector<at::Tensor> initial_parameters(const ModelConfig& model, uint64_t seed);

// The sum of the cross-entropies of all targets. `tokens` is [sequences, context + 1] on the device of the
// first parameter. `recompute` names the layers that keep only their input for the backward.
at::Tensor loss_sum(const ModelConfig& model, at::TensorList parameters, const at::Tensor& tokens,
                    const std::set<uint32_t>& recompute, bool training);
// The same for each sequence, without autograd: [sequences].
at::Tensor sequence_losses(const ModelConfig& model, at::TensorList parameters, const at::Tensor& tokens);

}  // namespace spillway::trainer::gpt
