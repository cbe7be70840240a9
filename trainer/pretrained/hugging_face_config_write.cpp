#include <nlohmann/json.hpp>

#include "trainer/pretrained/hugging_face_config.h"

namespace spillway::trainer {
namespace {

using nlohmann::json;

// Transformers' default marks of a text's begin and end; a smaller vocabulary has none.
constexpr uint32_t kGpt2Mark = 50256, kLlamaMarks = 3;

void write_gpt2(const Architecture& model, json* config) {
  config->update({
      {"architectures", {"GPT2LMHeadModel"}},
      {"n_layer", model.layers},
      {"n_embd", model.width},
      {"n_head", model.heads},
      {"n_inner", model.hidden},
      {"n_positions", model.positions()},
      {"activation_function", name_of(model.activation)},
      {"layer_norm_epsilon", model.norm_epsilon},
      {"embd_pdrop", model.dropout},
      {"resid_pdrop", model.dropout},
      {"attn_pdrop", 0.0},
  });
  if (model.vocabulary <= kGpt2Mark) config->update({{"bos_token_id", nullptr}, {"eos_token_id", nullptr}});
}

void write_llama(const Architecture& model, json* config) {
  config->update({
      {"architectures", {"LlamaForCausalLM"}},
      {"num_hidden_layers", model.layers},
      {"hidden_size", model.width},
      {"num_attention_heads", model.heads},
      {"num_key_value_heads", model.key_value_heads},
      {"head_dim", model.head_width},
      {"intermediate_size", model.hidden},
      {"max_position_embeddings", model.positions()},
      {"hidden_act", name_of(model.activation)},
      {"rms_norm_eps", model.norm_epsilon},
      {"rope_theta", model.rotary_base},  // transformers 4 reads this one, transformers 5 the next
      {"rope_parameters", {{"rope_theta", model.rotary_base}, {"rope_type", "default"}}},
  });
  if (model.vocabulary < kLlamaMarks) config->update({{"bos_token_id", nullptr}, {"eos_token_id", nullptr}});
}

// "gated-gelu" means the GELU by tanh; 'dense_act_fn' says which one where that matters.
std::string projection_of(const Architecture& model) {
  if (!model.gated) return name_of(model.activation);
  return model.activation == Activation::kGeluTanh ? "gated-gelu"
                                                   : std::string("gated-") + name_of(model.activation);
}

void write_t5(const Architecture& model, json* config) {
  config->update({
      {"architectures", {"T5ForConditionalGeneration"}},
      {"is_encoder_decoder", true},
      {"num_layers", model.layers},
      {"num_decoder_layers", model.decoder_layers},
      {"d_model", model.width},
      {"num_heads", model.heads},
      {"d_kv", model.head_width},
      {"d_ff", model.hidden},
      {"n_positions", model.positions()},
      {"feed_forward_proj", projection_of(model)},
      {"dense_act_fn", name_of(model.activation)},
      {"layer_norm_epsilon", model.norm_epsilon},
      {"relative_attention_num_buckets", model.buckets},
      {"relative_attention_max_distance", model.furthest_bucket},
      {"dropout_rate", model.dropout},
      {"pad_token_id", 0},
      {"eos_token_id", 1},
      {"decoder_start_token_id", 0},
  });
}

void write_mark(const char* key, const std::optional<std::vector<int64_t>>& tokens, json* config) {
  if (!tokens) return;
  if (tokens->size() > 1)
    (*config)[key] = *tokens;
  else
    (*config)[key] = tokens->empty() ? json() : json(tokens->front());
}

}  // namespace

std::string hugging_face_config(const Architecture& model, const TextMarks& marks) {
  json config = {
      {"model_type", name_of(model.family)},
      {"vocab_size", model.vocabulary},
      {"tie_word_embeddings", model.tied_head},
      {"dtype", "float32"},        // for transformers 5
      {"torch_dtype", "float32"},  // for transformers 4
  };
  if (model.family == Family::kGpt2) write_gpt2(model, &config);
  if (model.family == Family::kLlama) write_llama(model, &config);
  if (model.family == Family::kT5) write_t5(model, &config);
  write_mark("bos_token_id", marks.begin, &config);
  write_mark("eos_token_id", marks.end, &config);
  return config.dump(2) + "\n";
}

}  // namespace spillway::trainer
