#include "trainer/plan/architecture.h"

#include <algorithm>
#include <cmath>
#include <cstdio>

namespace spillway::trainer {
namespace {

constexpr const char* kFamilyNames[] = {"gpt2", "llama", "t5"};
constexpr const char* kActivationNames[] = {"gelu", "gelu_new", "relu", "silu"};

constexpr double kNoise = 0.15, kSpan = 3;
constexpr uint32_t kLeastSpanContext = 3;

// The sizes that `raw` tokens of text give: every span of noise becomes one sentinel in the input and a
// sentinel with its tokens in the target; both end with an end of sequence.
SpanSizes sizes_of(uint32_t raw, uint32_t* input_tokens) {
  SpanSizes sizes{.raw_tokens = raw};
  sizes.noise_tokens = std::clamp<uint32_t>(uint32_t(std::lround(raw * kNoise)), 1, raw - 1);
  sizes.spans = std::max<uint32_t>(1, uint32_t(std::lround(sizes.noise_tokens / kSpan)));
  sizes.target_tokens = sizes.noise_tokens + sizes.spans + 1;
  *input_tokens = raw - sizes.noise_tokens + sizes.spans + 1;
  return sizes;
}

}  // namespace

const char* name_of(Family family) {
  return kFamilyNames[static_cast<size_t>(family)];
}

std::optional<Family> family_of(std::string_view name) {
  for (const Family family : kFamilies)
    if (name == name_of(family)) return family;
  return std::nullopt;
}

const char* name_of(Activation activation) {
  return kActivationNames[static_cast<size_t>(activation)];
}

SpanSizes span_sizes(uint32_t context) {
  SpanSizes longest;
  // An input has about nine tenths of its text. It grows by one token or by none when the text grows by one,
  // so that one text fills it exactly.
  const auto about = uint32_t(uint64_t{context} * 10 / 9);
  for (uint32_t raw = std::max(2u, about - std::min(about, 8u)); raw <= about + 8; ++raw) {
    uint32_t input = 0;
    const SpanSizes sizes = sizes_of(raw, &input);
    if (input == context) longest = sizes;
  }
  return longest;
}

Architecture Architecture::usual(Family family, uint32_t layers, uint32_t width, uint32_t heads,
                                 uint32_t context) {
  Architecture model{.family = family, .layers = layers, .width = width, .heads = heads, .context = context};
  model.key_value_heads = heads;
  model.head_width = heads ? width / heads : 0;
  model.hidden = 4 * width;
  if (family == Family::kLlama) {
    // Two thirds of four widths, so that three products count as many parameters as two of four widths.
    model.hidden = (8 * width / 3 + 31) / 32 * 32;
    model.gated = true;
    model.tied_head = false;
    model.activation = Activation::kSilu;
    model.norm_epsilon = 1e-6;
  } else if (family == Family::kT5) {
    model.decoder_layers = layers;
    model.vocabulary = 384;  // of ByT5: three of its own, 256 bytes, 125 sentinels
    model.activation = Activation::kRelu;
    model.norm_epsilon = 1e-6;
  }
  return model;
}

uint32_t Architecture::target_tokens() const {
  if (has_pairs()) return target;
  return has_decoder() ? span_sizes(context).target_tokens : context;
}

std::string fault_of(const Architecture& model) {
  const auto number = [](uint32_t value) { return std::to_string(value); };
  if (model.heads == 0 || model.head_width == 0)
    return "'model.width' (" + number(model.width) + ") must be a multiple of 'model.heads' (" +
           number(model.heads) + ")";
  if (model.family == Family::kGpt2 && model.query_width() != model.width)
    return "'model.width' (" + number(model.width) + ") must be a multiple of 'model.heads' (" +
           number(model.heads) + ")";
  if (model.family == Family::kGpt2 && model.context > model.positions())
    return "'model.context' (" + number(model.context) + ") is more than the " + number(model.positions()) +
           " positions that the gpt2 has a table of";
  if (model.key_value_heads == 0 || model.heads % model.key_value_heads != 0)
    return "'model.heads' (" + number(model.heads) + ") must be a multiple of 'model.key_value_heads' (" +
           number(model.key_value_heads) + ")";
  if (model.family != Family::kLlama && model.key_value_heads != model.heads)
    return "'model.key_value_heads' differs from 'model.heads': only a llama has grouped queries";
  if (model.family == Family::kLlama && model.head_width % 2 != 0)
    return "a llama's heads need an even width, not " + number(model.head_width) +
           ": rotary positions turn pairs";
  if (model.family == Family::kGpt2 && model.gated)
    return "'model.gated' is for a t5: a gpt2 has a plain MLP";
  if (model.family == Family::kLlama && !model.gated)
    return "'model.gated' is false, and a llama has a gated MLP";
  if (model.family == Family::kLlama && model.activation != Activation::kSilu)
    return std::string("a llama's MLP has \"silu\", not \"") + name_of(model.activation) + '"';
  if (model.has_decoder() != (model.decoder_layers > 0))
    return model.has_decoder()
               ? "'model.decoder_layers' must be at least 1"
               : "'model.decoder_layers' is for a t5: the others have no decoder of their own";
  if (model.has_decoder() && (model.buckets < 4 || model.buckets % 2 != 0))
    return "'model.buckets' (" + number(model.buckets) + ") must be even and at least 4";
  if (model.has_pairs() && !model.has_decoder())
    return "'model.target' is for a t5: the others learn from one text, not from pairs";
  if (model.has_decoder() && !model.has_pairs() && model.context < kLeastSpanContext)
    return "'model.context' (" + number(model.context) + ") must be at least " + number(kLeastSpanContext) +
           ": an input of a t5 holds text, a sentinel and an end";
  if (model.has_decoder() && model.furthest_bucket <= model.buckets / 2)
    return "'model.furthest_bucket' (" + number(model.furthest_bucket) +
           ") must be more than half of 'model.buckets' (" + number(model.buckets) + ")";
  return "";
}

std::string to_string(const Architecture& model) {
  char text[512], more[160] = "";
  std::snprintf(
      text, sizeof text,
      "%s layers=%u width=%u heads=%u head_width=%u hidden=%u context=%u vocabulary=%u activation=%s "
      "norm_epsilon=%.9g%s%s",
      name_of(model.family), model.layers, model.width, model.heads, model.head_width, model.hidden,
      model.context, model.vocabulary, name_of(model.activation), model.norm_epsilon,
      model.gated ? " gated" : "", model.tied_head ? " tied_head" : "");
  if (model.family == Family::kGpt2 && model.positions() != model.context)
    std::snprintf(more, sizeof more, " positions=%u", model.positions());
  if (model.family == Family::kLlama)
    std::snprintf(more, sizeof more, " key_value_heads=%u rotary_base=%.9g", model.key_value_heads,
                  model.rotary_base);
  if (model.has_decoder())
    std::snprintf(more, sizeof more, " decoder_layers=%u buckets=%u furthest_bucket=%u", model.decoder_layers,
                  model.buckets, model.furthest_bucket);
  return std::string(text) + more + (model.has_pairs() ? " target=" + std::to_string(model.target) : "");
}

}  // namespace spillway::trainer
