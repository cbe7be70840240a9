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
// They share their blocks: only what it takes counts. Returns how many blocks.
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
  return blocks.size();
}

// What a card has, and what it needs beside the cache.
struct Card {
  at::Device device;
  uint64_t limit = 0, used = 0, step = 0, block = 0;

  double left(double share) const { return double(limit) * share - double(used) - double(step); }
  uint64_t blocks(double share) const {
    return uint64_t(std::max(0.0, left(share)) / double(std::max<uint64_t>(1, block)));
  }
  std::string told(double share) const {
    char text[240];
    std::snprintf(
        text, sizeof text,
        "of %.1f MiB that may be used%s, weights and others have %.1f MiB and a step needs %.1f MiB",
        mebibytes(double(limit) * share), device.index() > 0 ? " there" : "", mebibytes(double(used)),
        mebibytes(double(step)));
    return text;
  }
};

spillway_memory memory_of(const Core& core, at::Device device) {
  spillway_memory memory;
  if (!core.query(device.index(), &memory))
    throw NoRoomError("the memory of " + device.str() + " is not known");
  return memory;
}

// The device whose requests nothing could serve, in words.
std::string where_it_ended(const Core& core, const std::vector<at::Device>& devices,
                           const std::vector<spillway_memory>& before) {
  for (size_t i = 0; i < devices.size(); ++i)
    if (memory_of(core, devices[i]).gave_up > before[i].gave_up) return " on " + devices[i].str();
  return "";
}

std::vector<Card> measured(const ServedModel& model, const BatchLimits& limits, const Core& core) {
  const std::vector<at::Device> devices = model.devices();
  std::vector<spillway_memory> before;
  for (const at::Device device : devices) {
    before.push_back(memory_of(core, device));
    core.reset_peaks(device.index());
  }
  uint64_t blocks = 0;
  try {
    blocks = compute_largest_step(model, limits);
  } catch (const c10::OutOfMemoryError&) {
    throw NoRoomError("no room for one step" + where_it_ended(core, devices, before) +
                      ": lower --prefill-tokens or --max-sequences, spread the layers over more devices "
                      "(--devices, --device-map), or serve in bf16 (--dtype)");
  }
  std::vector<Card> cards;
  for (size_t i = 0; i < devices.size(); ++i) {
    const uint64_t live = before[i].live + before[i].rounding, block = model.block_bytes(devices[i]),
                   peak = memory_of(core, devices[i]).peak_allocated;
    cards.push_back({devices[i], before[i].limit, before[i].context + before[i].others + live,
                     peak - std::min(live + blocks * block, peak), block});
  }
  return cards;
}

std::string no_room_for_blocks(const Card& card, bool alone, double share) {
  char text[160];
  std::snprintf(text, sizeof text,
                "no room for a cache%s, where %.1f MiB are missing for two blocks of %u tokens (",
                alone ? "" : (" on " + card.device.str()).c_str(),
                mebibytes(2 * double(card.block) - card.left(share)), kBlockTokens);
  return text + card.told(share) + "): raise --memory-utilization, lower --prefill-tokens, " +
         (alone ? "" : "give that device fewer layers (--device-map), ") +
         "use more devices (--devices), or serve in bf16 (--dtype)";
}

std::string cache_in_words(uint64_t blocks, uint64_t block) {
  char text[160];
  std::snprintf(text, sizeof text, "cache: %.1f MiB, %llu blocks of %u tokens",
                mebibytes(double(blocks * block)), static_cast<unsigned long long>(blocks), kBlockTokens);
  return text;
}

// The size of a block on all devices together: more than nothing, because a model has layers.
uint64_t whole_block(const ServedModel& model) {
  uint64_t bytes = 0;
  for (const at::Device device : model.devices()) bytes += model.block_bytes(device);
  return std::max(bytes, uint64_t{1});
}

constexpr uint64_t kMostBlocks = uint64_t{1} << 30;

}  // namespace

uint32_t cache_blocks(const ServedModel& model, const CacheOptions& options, const BatchLimits& limits,
                      const Core& core, std::string* told) {
  const uint64_t block = whole_block(model);
  if (options.bytes > 0 || !model.devices()[0].is_cuda()) {
    const uint64_t bytes = options.bytes > 0 ? options.bytes : CacheOptions::kCpuBytes,
                   blocks = std::min(bytes / block, kMostBlocks);
    *told = cache_in_words(blocks, block);
    if (blocks < 2) throw NoRoomError("no room for a cache of two blocks (" + *told + "): raise --cache");
    return static_cast<uint32_t>(blocks);
  }
  const double share = options.memory_utilization;
  const std::vector<Card> cards = measured(model, limits, core);
  const auto has_fewer = [&](const Card& a, const Card& b) { return a.blocks(share) < b.blocks(share); };
  const Card& tightest = *std::ranges::min_element(cards, has_fewer);
  const uint64_t blocks = std::min(tightest.blocks(share), kMostBlocks);
  *told = cache_in_words(blocks, block) + "; " +
          (cards.size() > 1 ? tightest.device.str() + " has room for the fewest: " : "") +
          tightest.told(share);
  if (blocks < 2) throw NoRoomError(no_room_for_blocks(tightest, cards.size() == 1, share));
  return static_cast<uint32_t>(blocks);
}

}  // namespace spillway::trainer::serve
