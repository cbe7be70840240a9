// The keys and values of all layers, in blocks of kBlockTokens tokens.
//
// Each layer has two tensors on its device, in which a block has the same number, so that a sequence has one
// table of blocks. They begin as zeros: what a masked place holds is always a number, and zero times it is
// zero.
//
// Thread-safety: one thread. Ownership: owns its tensors. Errors: LibTorch's exceptions.
#pragma once
#include <span>

#include "trainer/libtorch.h"
#include "trainer/plan/architecture.h"

namespace spillway::trainer::serve {

// Layers that attend to what was made before: all, or those of the decoder.
uint32_t cached_layers(const Architecture& model);
// Of one of these layers.
uint64_t bytes_of_block(const Architecture& model, at::ScalarType type);

class KvCache {
 public:
  struct Pair {
    at::Tensor key, value;
  };

  // `devices`: of each of its layers.
  KvCache(const Architecture& model, uint32_t blocks, std::span<const at::Device> devices,
          at::ScalarType type);

  // `pair` is [1, heads, tokens, width]; `slots` [tokens] are block · kBlockTokens + place.
  void write(uint32_t layer, const at::Tensor& slots, const Pair& pair);
  // Copies of blocks `table` [sequences, blocks]: [sequences, heads, blocks · kBlockTokens, width].
  Pair read(uint32_t layer, const at::Tensor& table) const;

 private:
  std::vector<Pair> layers_;  // [blocks · kBlockTokens, heads, width]
};

}  // namespace spillway::trainer::serve
