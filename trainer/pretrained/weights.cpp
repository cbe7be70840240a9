#include "trainer/pretrained/weights.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <set>

namespace spillway::trainer {
namespace {

using safetensors::StoredTensor;

// No model computes with these: constants that old versions saved, and a bias that T5's decoder does not use.
constexpr const char* kUnused[] = {
    ".attn.bias",
    ".attn.masked_bias",
    ".rotary_emb.inv_freq",
    "decoder.block.0.layer.1.EncDecAttention.relative_attention_bias.weight",
};
constexpr const char* kEmbeddings[] = {"shared.weight", "transformer.wte.weight",
                                       "model.embed_tokens.weight"};
constexpr const char* kCopies[] = {"lm_head.weight", "encoder.embed_tokens.weight",
                                   "decoder.embed_tokens.weight"};

// As a base model names it; the same name where its model is the base.
std::string base_name(const std::string& name) {
  for (const std::string prefix : {"transformer.", "model."})
    if (name.starts_with(prefix)) return name.substr(prefix.size());
  return name;
}

// The name in the files; "" when it is not there.
std::string name_in(const Shards& shards, const std::string& parameter) {
  for (const std::string& name : {parameter, base_name(parameter)})
    if (shards.find(name)) return name;
  return "";
}

std::string text_of(const std::vector<int64_t>& sizes) {
  std::string text;
  for (const int64_t size : sizes) text += (text.empty() ? "" : ", ") + std::to_string(size);
  return "[" + text + "]";
}

bool is_float(const std::string& type) {
  return type == "F32" || type == "F16" || type == "BF16";
}

std::string why_missing(const std::string& parameter) {
  return parameter == "lm_head.weight"
             ? "is missing, and by config.json the head is not tied to the embedding"
             : "is missing";
}

// "" when the tensor is what the parameter needs.
std::string fault_of(const StoredTensor& tensor, const Parameter& parameter) {
  if (tensor.shape != parameter.sizes)
    return "has shape " + text_of(tensor.shape) + ", and the model needs " + text_of(parameter.sizes);
  if (!is_float(tensor.type)) return "has type " + tensor.type + ": only F32, F16 and BF16 are supported";
  return "";
}

bool is_unused(const std::string& name) {
  return std::any_of(std::begin(kUnused), std::end(kUnused),
                     [&](const char* end) { return name.ends_with(end); });
}

const StoredTensor* find_embedding(const Shards& shards) {
  for (const char* name : kEmbeddings)
    if (const StoredTensor* tensor = find_weight(shards, name)) return tensor;
  return nullptr;
}

bool same(const StoredTensor& a, const StoredTensor& b) {
  return a.type == b.type && a.shape == b.shape && std::ranges::equal(a.data, b.data);
}

// "" when the model loses nothing without this tensor.
std::string fault_of_extra(const Shards& shards, const std::string& name) {
  if (is_unused(name)) return "";
  if (std::find(std::begin(kCopies), std::end(kCopies), name) == std::end(kCopies))
    return "is none of the model's: is config.json that of another model?";
  const StoredTensor* embedding = find_embedding(shards);
  if (embedding && same(*shards.find(name), *embedding)) return "";
  return "differs from the embedding, and the model has only one of them: a head of its own needs "
         "'tie_word_embeddings' false in config.json";
}

// Inf and NaN stay what they are. A subnormal is made from its whole number, so that a processor that flushes
// subnormal floats does not lose it.
float float_of_f16(uint16_t bits) {
  constexpr uint32_t kRebias = (127 - 15) << 23, kInfinity = 0x7f800000;
  const uint32_t sign = uint32_t(bits & 0x8000) << 16, exponent = bits & 0x7c00, rest = bits & 0x7fff;
  if (exponent == 0) return std::bit_cast<float>(std::bit_cast<uint32_t>(float(rest) * 0x1p-24f) | sign);
  return std::bit_cast<float>(sign | (exponent == 0x7c00 ? kInfinity | rest << 13 : (rest << 13) + kRebias));
}

float float_of_bf16(uint16_t bits) {
  return std::bit_cast<float>(uint32_t(bits) << 16);
}

// The bytes may lie at any address.
template <typename Convert>
void convert_halves(std::span<const std::byte> data, std::span<float> out, const Convert& convert) {
  for (size_t i = 0; i < out.size(); ++i) {
    uint16_t bits = 0;
    std::memcpy(&bits, data.data() + i * sizeof bits, sizeof bits);
    out[i] = convert(bits);
  }
}

}  // namespace

const StoredTensor* find_weight(const Shards& shards, const std::string& parameter) {
  const std::string name = name_in(shards, parameter);
  return name.empty() ? nullptr : shards.find(name);
}

bool check_weights(const Shards& shards, const std::vector<Parameter>& table, std::string* error) {
  const auto fail = [&](const std::string& name, const std::string& why) {
    return *error = shards.folder() + ": tensor '" + name + "' " + why, false;
  };
  std::set<std::string> used;
  for (const Parameter& parameter : table) {
    const std::string name = name_in(shards, parameter.name);
    if (name.empty()) return fail(parameter.name, why_missing(parameter.name));
    const std::string fault = fault_of(*shards.find(name), parameter);
    if (!fault.empty()) return fail(name, fault);
    used.insert(name);
  }
  for (const std::string& name : shards.names()) {
    const std::string fault = used.contains(name) ? "" : fault_of_extra(shards, name);
    if (!fault.empty()) return fail(name, fault);
  }
  return true;
}

bool read_floats(const StoredTensor& tensor, std::span<float> out) {
  const size_t width = tensor.type == "F32" ? 4 : 2;
  if (!is_float(tensor.type) || tensor.data.size() != out.size() * width) return false;
  if (tensor.type == "F16") convert_halves(tensor.data, out, float_of_f16);
  if (tensor.type == "BF16") convert_halves(tensor.data, out, float_of_bf16);
  if (tensor.type == "F32" && !out.empty()) std::memcpy(out.data(), tensor.data.data(), out.size_bytes());
  return true;
}

}  // namespace spillway::trainer
