#include "trainer/serve/engine/cache_size.h"

#include <algorithm>
#include <cstdio>
#include <numeric>

#include "trainer/model/parts.h"

namespace spillway::trainer::serve {
namespace {

double mebibytes(double bytes) {
  return bytes / 0x1p20;
}

// The end of a prompt as long as the context, and as many sequences of that length as there may be beside it.
// They share their blocks: only what it takes counts. Returns what the blocks took.
uint64_t compute_largest_step(const ServedModel& model, const BatchLimits& limits) {
  const Architecture& architecture = model.architecture();
  std::vector<uint32_t> blocks(blocks_for(architecture.context));
  std::iota(blocks.begin(), blocks.end(), 0u);
  KvCache cache = model.make_cache(static_cast<uint32_t>(blocks.size()));
  std::vector<Sequence> sequences(limits.sequences);
  std::vector<Segment> batch;
  for (Sequence& sequence : sequences) {
    const bool first = batch.empty();
    const uint64_t tokens = first ? std::min(limits.prefill_tokens, architecture.context) : 1;
    sequence.tokens.assign(architecture.context, t5::kPad);
    sequence.cached = sequence.tokens.size() - tokens;
    sequence.blocks = blocks;
    if (architecture.has_decoder()) {
      sequence.source = sequence.tokens;
      sequence.source_blocks = blocks;
      sequence.source_cached = !first;
    }
    batch.push_back({&sequence, tokens});
  }
  model.logits(&batch, &cache);
  return blocks.size() * bytes_of_block(architecture, c10::typeMetaToScalarType(model.options().dtype()));
}

struct Measured {
  uint64_t limit = 0, used = 0, step = 0;
};

Measured measured(const ServedModel& model, const BatchLimits& limits, const Core& core, int device) {
  spillway_memory before, after;
  if (!core.query(device, &before)) throw CacheSizeError("the device's memory is not known");
  core.reset_peaks(device);
  uint64_t blocks = 0;
  try {
    blocks = compute_largest_step(model, limits);
  } catch (const c10::OutOfMemoryError&) {
    throw CacheSizeError(
        "no room for one step: lower --prefill-tokens or --max-sequences, or serve in bf16 (--dtype)");
  }
  core.query(device, &after);
  const uint64_t live = before.live + before.rounding, peak = after.peak_allocated;
  return {before.limit, before.context + before.others + live, peak - std::min(live + blocks, peak)};
}

}  // namespace

uint32_t cache_blocks(const ServedModel& model, const CacheOptions& options, const BatchLimits& limits,
                      const Core& core, std::string* told) {
  const Architecture& architecture = model.architecture();
  const at::Device device = model.options().device();
  const uint64_t block = bytes_of_block(architecture, c10::typeMetaToScalarType(model.options().dtype()));
  uint64_t bytes = options.bytes;
  char text[320] = "";
  if (bytes == 0 && device.is_cuda()) {
    const Measured card = measured(model, limits, core, device.index());
    const double allowed = double(card.limit) * options.memory_utilization;
    const double left = allowed - double(card.used) - double(card.step);
    bytes = uint64_t(std::max(0.0, left));
    std::snprintf(
        text, sizeof text,
        "; of %.1f MiB that may be used, weights and others have %.1f MiB and a step needs %.1f MiB",
        mebibytes(allowed), mebibytes(double(card.used)), mebibytes(double(card.step)));
  } else if (bytes == 0) {
    bytes = CacheOptions::kCpuBytes;
  }
  const uint64_t blocks = std::min<uint64_t>(bytes / block, uint64_t{1} << 30);
  char head[160];
  std::snprintf(head, sizeof head, "cache: %.1f MiB, %llu blocks of %u tokens",
                mebibytes(double(blocks * block)), static_cast<unsigned long long>(blocks), kBlockTokens);
  *told = std::string(head) + text;
  if (blocks < 2)
    throw CacheSizeError("no room for a cache (" + *told +
                         "): raise --memory-utilization, lower --prefill-tokens, or serve in bf16 (--dtype)");
  return static_cast<uint32_t>(blocks);
}

}  // namespace spillway::trainer::serve
