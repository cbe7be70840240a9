// Architecture: which model is trained, as a value: its family and its sizes.
//
// A family fixes the mathematics (trainer/model has its forward function) and the table of the parameters
// (trainer/plan/parameters/parameter_table.h); the sizes fix how many there are. Names, layouts and
// mathematics are those of Hugging Face's transformers, so that weights are read and written as they are.
//
// A layer is the unit of placement; it, or one of its parts, is that of recompute. The layers of an encoder
// come first, those of the decoder after them.
//
// Thread-safety: values and pure functions. Errors: `fault_of` says what is wrong with the sizes.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace spillway::trainer {

enum class Family : uint8_t {
  kGpt2,   // learned positions, LayerNorm, GELU by tanh, biases
  kLlama,  // rotary positions, grouped-query attention, RMSNorm, gated MLP, no biases
  kT5,     // encoder and decoder, relative position buckets, RMSNorm, plain or gated MLP, no biases
};
inline constexpr Family kFamilies[] = {Family::kGpt2, Family::kLlama, Family::kT5};
const char* name_of(Family family);  // "gpt2", "llama", "t5"
std::optional<Family> family_of(std::string_view name);

enum class Activation : uint8_t { kGelu, kGeluTanh, kRelu, kSilu };
// Hugging Face's names: "gelu", "gelu_new", "relu", "silu".
const char* name_of(Activation activation);

// A layer's parts, in order, each with the norm before it and the dropout behind it.
enum class Part : uint8_t { kAttention, kCrossAttention, kMlp };  // kCrossAttention: kT5's decoder alone

struct Architecture {
  Family family = Family::kGpt2;
  uint32_t layers = 6;          // of the encoder, where there is one
  uint32_t decoder_layers = 0;  // kT5 alone; elsewhere 0
  uint32_t width = 384;
  uint32_t heads = 6;
  uint32_t key_value_heads = 6;  // fewer than `heads`: grouped-query attention (kLlama)
  uint32_t head_width = 64;
  uint32_t hidden = 1536;  // width inside the MLP
  uint32_t context = 256;  // tokens of an input
  // Tokens of an input that a model was made for, where a training has another `context`; else 0. A kGpt2 has
  // a table of so many positions, of which a shorter training learns the first ones.
  uint32_t pretrained_context = 0;
  // Tokens of a target, where examples are pairs of texts that are padded to `context` and to this; 0: span
  // corruption says how many (kT5).
  uint32_t target = 0;
  uint32_t vocabulary = 256;
  bool gated = false;  // the MLP multiplies two products; kLlama always
  bool tied_head = true;
  Activation activation = Activation::kGeluTanh;
  double norm_epsilon = 1e-5;
  double rotary_base = 10000;      // kLlama
  uint32_t buckets = 32;           // of relative positions; kT5
  uint32_t furthest_bucket = 128;  // tokens from which on all distances share a bucket; kT5
  double dropout = 0;              // of the embeddings and of what a layer adds to the residual

  bool operator==(const Architecture&) const = default;

  // What the family's models usually have, and its own sizes derived from `width` and `heads`.
  static Architecture usual(Family family, uint32_t layers, uint32_t width, uint32_t heads, uint32_t context);

  bool has_decoder() const { return family == Family::kT5; }
  // How the layers' matrices are stored: [in, out], or [out, in].
  bool stores_in_out() const { return family == Family::kGpt2; }
  // Of the layers' products.
  bool has_biases() const { return family == Family::kGpt2; }
  bool has_pairs() const { return target > 0; }
  uint32_t all_layers() const { return layers + decoder_layers; }
  bool is_decoder_layer(uint32_t layer) const { return has_decoder() && layer >= layers; }
  uint32_t positions() const { return pretrained_context != 0 ? pretrained_context : context; }
  // Width of all heads' queries together, and of all keys.
  uint32_t query_width() const { return heads * head_width; }
  uint32_t key_width() const { return key_value_heads * head_width; }
  // Tokens of a target: for kT5 `target`, or else what span corruption leaves of an input of `context` tokens
  // (trainer/data/span_corruption.h). With padding.
  uint32_t target_tokens() const;
  // Tokens of an example: a text and the token behind it, or an input and its target.
  uint32_t row_tokens() const { return context + (has_decoder() ? target_tokens() : 1); }
};

// Span corruption of inputs of exactly `context` tokens, of Raffel et al., "Exploring the Limits of Transfer
// Learning" (2020), section 3.1.4: of `raw_tokens` of text 15 % are noise, in spans of three on average. A
// span becomes a sentinel in the input; the target has each sentinel and its tokens; both end with an end of
// sequence.
struct SpanSizes {
  uint32_t raw_tokens = 0, noise_tokens = 0, spans = 0, target_tokens = 0;
};
SpanSizes span_sizes(uint32_t context);

// What a model cannot have, as a text that names the key of the configuration; "" when nothing is wrong.
std::string fault_of(const Architecture& model);
// Equal texts, equal models but for the dropout. "gpt2 layers=6 width=384 ..."
std::string to_string(const Architecture& model);

}  // namespace spillway::trainer
