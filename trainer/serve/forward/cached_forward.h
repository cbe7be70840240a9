// A step of a model over a cache: its keys and values are written, and what came before them is read.
//
// What a family's step is given. Prompts that begin attend as a training's rows do, by the same operators;
// later tokens read copies of their blocks. A layer runs on the device that its weights are on; the tokens'
// rows go from device to device, and to the first one for the head.
//
// Thread-safety: one thread. Ownership: borrows everything. Errors: LibTorch's exceptions.
#pragma once
#include "trainer/model/parts.h"
#include "trainer/serve/forward/kv_cache.h"
#include "trainer/serve/forward/step_batch.h"

namespace spillway::trainer::serve {

struct CachedForward {
  const Forward& forward;
  const DeviceBatches& batches;
  KvCache& cache;

  const StepBatch& first() const { return batches.first(); }
  at::Device device_of(uint32_t layer) const { return forward.device_of(layer); }
  at::Device home() const { return forward.outer().device(); }
  LayerWeights of(uint32_t layer, Part part) const;
  // `numbered` is the layer's number in the cache. Keys and values of fewer heads are of grouped queries.
  at::Tensor attend(uint32_t numbered, const at::Tensor& query, const KvCache::Pair& fresh) const;
};

// [1, heads, tokens, width] ↔ [sequences, heads, tokens of each, width], of a group's rows.
at::Tensor rows_of(const Group& group, const at::Tensor& heads);
at::Tensor in_rows(const at::Tensor& heads);

// The head over all rows of the batch.
Head gpt2_step(const CachedForward& step);
Head llama_step(const CachedForward& step);
Head t5_step(const CachedForward& step);

}  // namespace spillway::trainer::serve
