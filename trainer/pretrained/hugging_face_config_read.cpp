#include <utility>

#include "trainer/pretrained/hugging_face_config.h"
#include "trainer/pretrained/json_keys.h"

namespace spillway::trainer {
namespace {

// Far above any known model, and low enough that no product of two sizes overflows.
constexpr uint32_t kMostLayers = 1000, kMostWidth = 1 << 16, kMostHeads = 1 << 10, kMostHidden = 1 << 20,
                   kMostContext = 1 << 24, kMostVocabulary = 1 << 24;

constexpr uint32_t kT5Context = 512;  // the paper's

constexpr std::pair<const char*, Activation> kActivations[] = {
    {"gelu", Activation::kGelu},
    {"gelu_new", Activation::kGeluTanh},
    {"gelu_pytorch_tanh", Activation::kGeluTanh},
    {"relu", Activation::kRelu},
    {"silu", Activation::kSilu},
    {"swish", Activation::kSilu},
};

// Reads the keys of one file; the first error ends it.
class ConfigKeys {
 public:
  ConfigKeys(const nlohmann::json& object, uint32_t context)
      : object_(object), keys_(object), context_(context) {}

  std::string read(Architecture* model) {
    read_family(model);
    if (keys_.failed()) return keys_.error();
    if (model->family == Family::kGpt2) read_gpt2(model);
    if (model->family == Family::kLlama) read_llama(model);
    if (model->family == Family::kT5) read_t5(model);
    return keys_.failed() ? keys_.error() : fault_of(*model);
  }

 private:
  void read_family(Architecture* model) {
    std::string type;
    keys_.text("model_type", &type);
    const auto family = family_of(type);
    if (type == "mistral")
      read_mistral(model);
    else if (family)
      model->family = *family;
    else if (keys_.find("model_type"))
      keys_.fail("'model_type' is \"" + type +
                 "\": only \"gpt2\", \"llama\", \"mistral\" and \"t5\" are supported");
    else
      keys_.fail("'model_type' is missing: \"gpt2\", \"llama\" or \"t5\"");
    if (keys_.find("quantization_config"))
      keys_.fail(
          "'quantization_config' is there, but quantized weights cannot be trained: choose the model "
          "that was not quantized");
    keys_.require("vocab_size", &model->vocabulary, 1, kMostVocabulary);
  }

  // A llama, where each token may look at all before it. What is not given has other defaults than a llama's.
  void read_mistral(Architecture* model) {
    model->family = Family::kLlama;
    const auto window = object_.find("sliding_window");
    if (window == object_.end() || !window->is_null())
      keys_.fail("'sliding_window' must be null for a mistral: attention within a window is not supported");
    for (const char* key : {"num_key_value_heads", "max_position_embeddings"})
      if (!keys_.find(key)) keys_.fail("'" + std::string(key) + "' is missing");
  }

  void read_gpt2(Architecture* model) {
    for (const char* key :
         {"scale_attn_by_inverse_layer_idx", "reorder_and_upcast_attn", "add_cross_attention"})
      keys_.must_be(key, false);
    keys_.must_be("scale_attn_weights", true);
    keys_.require("n_layer", &model->layers, 1, kMostLayers);
    keys_.require("n_embd", &model->width, 1, kMostWidth);
    keys_.require("n_head", &model->heads, 1, kMostHeads);
    model->key_value_heads = model->heads;
    model->head_width = model->width / model->heads;
    model->hidden = 4 * model->width;
    keys_.integer("n_inner", &model->hidden, 1, kMostHidden);
    std::string name = "gelu_new";
    keys_.text("activation_function", &name);
    model->activation = activation("activation_function", name);
    model->norm_epsilon = 1e-5;
    keys_.number("layer_norm_epsilon", &model->norm_epsilon, 0, 1);
    model->tied_head = true;
    keys_.flag("tie_word_embeddings", &model->tied_head);
    keys_.require("n_positions", &model->context, 1, kMostContext);
    if (context_ > model->context)
      keys_.fail("'n_positions' is " + std::to_string(model->context) +
                 ", and a GPT-2 has a table of that many positions: a context of " +
                 std::to_string(context_) + " needs another model");
    choose_context(model);
  }

  void read_llama(Architecture* model) {
    for (const char* key : {"attention_bias", "mlp_bias"}) keys_.must_be(key, false);
    read_parallel_slices();
    keys_.require("num_hidden_layers", &model->layers, 1, kMostLayers);
    keys_.require("hidden_size", &model->width, 1, kMostWidth);
    keys_.require("num_attention_heads", &model->heads, 1, kMostHeads);
    keys_.require("intermediate_size", &model->hidden, 1, kMostHidden);
    model->key_value_heads = model->heads;
    keys_.integer("num_key_value_heads", &model->key_value_heads, 1, kMostHeads);
    read_head_width(model);
    model->gated = true;
    std::string name = "silu";
    keys_.text("hidden_act", &name);
    model->activation = activation("hidden_act", name);
    if (model->activation != Activation::kSilu)
      keys_.fail("'hidden_act' must be \"silu\" for a llama: choose a model that was trained with it");
    model->norm_epsilon = 1e-6;
    keys_.number("rms_norm_eps", &model->norm_epsilon, 0, 1);
    model->tied_head = false;
    keys_.flag("tie_word_embeddings", &model->tied_head);
    read_rotary(model);
    read_llama_context(model);
  }

  // Products that are computed in slices are rounded otherwise.
  void read_parallel_slices() {
    uint32_t slices = 1;
    keys_.integer("pretraining_tp", &slices, 0, kMostHeads);
    if (slices > 1)
      keys_.fail("'pretraining_tp' is more than 1, which is not supported: choose a model with 1");
  }

  void read_head_width(Architecture* model) {
    model->head_width = model->width / model->heads;
    keys_.integer("head_dim", &model->head_width, 1, kMostWidth);
    if (!keys_.find("head_dim") && model->width % model->heads != 0)
      keys_.fail("'hidden_size' (" + std::to_string(model->width) +
                 ") must be a multiple of 'num_attention_heads' (" + std::to_string(model->heads) + ")");
  }

  // Transformers 4 has 'rope_theta' and 'rope_scaling'; in transformers 5 'rope_parameters' holds both.
  void read_rotary(Architecture* model) {
    if (keys_.find("rope_scaling")) refuse_rotary("'rope_scaling' is there");
    read_rotary_base(&keys_, model);
    const nlohmann::json* parameters = keys_.find("rope_parameters");
    if (!parameters) return;
    if (!parameters->is_object()) return keys_.fail("'rope_parameters' must be an object");
    JsonKeys inner(*parameters);
    read_rotary_base(&inner, model);
    std::string type = "default";
    inner.text("type", &type);
    inner.text("rope_type", &type);
    if (inner.failed()) keys_.fail("in 'rope_parameters': " + inner.error());
    if (type != "default") refuse_rotary("'rope_type' in 'rope_parameters' is \"" + type + "\"");
    for (const auto& [key, value] : parameters->items())
      if (key != "rope_theta" && key != "rope_type" && key != "type" && key != "partial_rotary_factor")
        refuse_rotary("'rope_parameters' has '" + key + "'");
  }

  void read_rotary_base(JsonKeys* keys, Architecture* model) {
    keys->number("rope_theta", &model->rotary_base, 1, 1e15);
    double turned = 1;
    keys->number("partial_rotary_factor", &turned, 0, 1);
    if (turned != 1) refuse_rotary("'partial_rotary_factor' is not 1");
  }

  void refuse_rotary(const std::string& why) {
    keys_.fail(why + ", which is not supported: choose a model whose rotary positions are plain ones");
  }

  void read_llama_context(Architecture* model) {
    keys_.require("max_position_embeddings", &model->context, 1, kMostContext);
    if (context_ > model->context)
      keys_.fail("'max_position_embeddings' is " + std::to_string(model->context) + ": a context of " +
                 std::to_string(context_) + " is longer than the model was made for");
    choose_context(model);
  }

  void choose_context(Architecture* model) {
    if (context_ == 0 || context_ == model->context) return;
    model->pretrained_context = model->context;
    model->context = context_;
  }

  void read_t5(Architecture* model) {
    keys_.must_be("is_encoder_decoder", true);
    keys_.must_be("tie_encoder_decoder", false);
    keys_.require("num_layers", &model->layers, 1, kMostLayers);
    model->decoder_layers = model->layers;
    keys_.integer("num_decoder_layers", &model->decoder_layers, 1, kMostLayers);
    keys_.require("d_model", &model->width, 1, kMostWidth);
    keys_.require("num_heads", &model->heads, 1, kMostHeads);
    model->key_value_heads = model->heads;
    keys_.require("d_kv", &model->head_width, 1, kMostWidth);
    keys_.require("d_ff", &model->hidden, 1, kMostHidden);
    model->norm_epsilon = 1e-6;
    keys_.number("layer_norm_epsilon", &model->norm_epsilon, 0, 1);
    keys_.integer("relative_attention_num_buckets", &model->buckets, 1, kMostContext);
    keys_.integer("relative_attention_max_distance", &model->furthest_bucket, 1, kMostContext);
    read_t5_activation(model);
    read_t5_head(model);
    read_t5_marks();
    model->context = kT5Context;
    keys_.integer("n_positions", &model->context, 1, kMostContext);
    choose_context(model);
    if (!keys_.find("n_positions")) model->pretrained_context = 0;
  }

  void read_t5_marks() {
    for (const char* key : {"pad_token_id", "decoder_start_token_id"}) {
      uint32_t token = 0;
      keys_.integer(key, &token, 0, kMostVocabulary);
      if (token != 0)
        keys_.fail(
            "'" + std::string(key) + "' is " + std::to_string(token) +
            ", which is not supported: choose a model whose padding is 0 and whose decoder starts from 0");
    }
  }

  // The two keys that transformers derives from 'feed_forward_proj' override it where they are there.
  void read_t5_activation(Architecture* model) {
    std::string name = "relu";
    keys_.text("feed_forward_proj", &name);
    model->gated = name.starts_with("gated-");
    if (model->gated) name.erase(0, std::string("gated-").size());
    if (model->gated && name == "gelu") name = "gelu_new";  // T5 1.1 was trained with it, under this name
    keys_.flag("is_gated_act", &model->gated);
    keys_.text("dense_act_fn", &name);
    model->activation = activation(keys_.find("dense_act_fn") ? "dense_act_fn" : "feed_forward_proj", name);
  }

  void read_t5_head(Architecture* model) {
    bool tied = true;
    keys_.flag("tie_word_embeddings", &tied);
    model->tied_head = tied;
    keys_.flag("scale_decoder_outputs", &model->tied_head);
    if (model->tied_head && !tied)
      keys_.fail(
          "'tie_word_embeddings' is false and 'scale_decoder_outputs' is true: the head of a T5 is "
          "scaled only where it is tied");
  }

  // `key` is the one that has the name, for the error.
  Activation activation(const std::string& key, const std::string& name) {
    for (const auto& [known, value] : kActivations)
      if (name == known) return value;
    keys_.fail("'" + key + "' is \"" + name + "\", which is not supported: it may be " +
               "\"gelu\", \"gelu_new\", \"gelu_pytorch_tanh\", \"relu\" or \"silu\"");
    return Activation::kGelu;
  }

  const nlohmann::json& object_;
  JsonKeys keys_;
  const uint32_t context_;
};

}  // namespace

std::optional<Architecture> read_hugging_face_config(const std::string& path, uint32_t context,
                                                     std::string* error) {
  const auto object = read_json_object(path, error);
  if (!object) return std::nullopt;
  Architecture model;
  const std::string fault = ConfigKeys(*object, context).read(&model);
  if (fault.empty()) return model;
  *error = path + ": " + fault;
  return std::nullopt;
}

}  // namespace spillway::trainer
