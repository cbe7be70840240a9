// T5 in the layout of transformers' T5ForConditionalGeneration: products are stored [out, in], and the first
// layer of each stack holds the relative position biases of all its layers. They belong to no layer here,
// because every layer reads them.
#include <cmath>

#include "trainer/plan/parameters/table.h"

namespace spillway::trainer {
namespace {

// The deviations are those of transformers' T5PreTrainedModel._init_weights.
class T5Writer {
 public:
  T5Writer(const Architecture& model, std::vector<Parameter>* table) : model_(model), write_(table) {}

  void outer() {
    write_.normal("shared.weight", {model_.vocabulary, model_.width}, 1);
    for (const char* stack : {"encoder", "decoder"}) {
      write_.normal(std::string(stack) + ".block.0.layer.0.SelfAttention.relative_attention_bias.weight",
                    {model_.buckets, model_.heads}, by_width());
      write_.ones(std::string(stack) + ".final_layer_norm.weight", model_.width);
    }
    if (!model_.tied_head) write_.normal("lm_head.weight", {model_.vocabulary, model_.width}, 1);
  }

  void layer(uint32_t layer) {
    const bool decodes = model_.is_decoder_layer(layer);
    write_.in_layer(int(layer), (decodes ? "decoder.block." : "encoder.block.") +
                                    std::to_string(decodes ? layer - model_.layers : layer) + ".");
    write_.in_part(Part::kAttention);
    attention("layer.0.", "SelfAttention.");
    write_.in_part(Part::kCrossAttention);
    if (decodes) attention("layer.1.", "EncDecAttention.");
    write_.in_part(Part::kMlp);
    mlp(decodes ? "layer.2." : "layer.1.");
  }

 private:
  double by_width() const { return 1 / std::sqrt(double(model_.width)); }

  void attention(const std::string& part, const std::string& name) {
    const int64_t width = model_.width, queries = model_.query_width();
    write_.ones(part + "layer_norm.weight", width);
    write_.normal(part + name + "q.weight", {queries, width},
                  by_width() / std::sqrt(double(model_.head_width)));
    write_.normal(part + name + "k.weight", {queries, width}, by_width());
    write_.normal(part + name + "v.weight", {queries, width}, by_width());
    write_.normal(part + name + "o.weight", {width, queries}, 1 / std::sqrt(double(queries)));
  }

  void mlp(const std::string& part) {
    const int64_t width = model_.width, hidden = model_.hidden;
    write_.ones(part + "layer_norm.weight", width);
    if (model_.gated) {
      write_.normal(part + "DenseReluDense.wi_0.weight", {hidden, width}, by_width());
      write_.normal(part + "DenseReluDense.wi_1.weight", {hidden, width}, by_width());
    } else {
      write_.normal(part + "DenseReluDense.wi.weight", {hidden, width}, by_width());
    }
    write_.normal(part + "DenseReluDense.wo.weight", {width, hidden}, 1 / std::sqrt(double(hidden)));
  }

  const Architecture& model_;
  TableWriter write_;
};

}  // namespace

std::vector<Parameter> t5_table(const Architecture& model) {
  std::vector<Parameter> table;
  T5Writer write(model, &table);
  write.outer();
  for (uint32_t layer = 0; layer < model.all_layers(); ++layer) write.layer(layer);
  return table;
}

}  // namespace spillway::trainer
