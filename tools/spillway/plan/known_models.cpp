#include "tools/spillway/plan/known_models.h"

#include <algorithm>
#include <cctype>
#include <set>
#include <utility>

namespace spillway::tools {
namespace {

struct KnownModel {
  const char* name;
  trainer::Architecture model;
};

trainer::Architecture gpt2(uint32_t width, uint32_t layers, uint32_t heads) {
  trainer::Architecture model =
      trainer::Architecture::usual(trainer::Family::kGpt2, layers, width, heads, 1024);
  model.vocabulary = 50257;
  return model;
}

struct LlamaSizes {
  uint32_t width, layers, heads, key_value_heads, hidden, vocabulary, context;
  double rotary_base, norm_epsilon;
  bool tied_head;
};

trainer::Architecture llama(const LlamaSizes& sizes) {
  trainer::Architecture model = trainer::Architecture::usual(trainer::Family::kLlama, sizes.layers,
                                                             sizes.width, sizes.heads, sizes.context);
  model.key_value_heads = sizes.key_value_heads;
  model.hidden = sizes.hidden;
  model.vocabulary = sizes.vocabulary;
  model.rotary_base = sizes.rotary_base;
  model.norm_epsilon = sizes.norm_epsilon;
  model.tied_head = sizes.tied_head;
  return model;
}

struct T5Sizes {
  uint32_t width, layers, heads, head_width, hidden;
  bool gated;
};

trainer::Architecture t5(const T5Sizes& sizes) {
  trainer::Architecture model =
      trainer::Architecture::usual(trainer::Family::kT5, sizes.layers, sizes.width, sizes.heads, 512);
  model.head_width = sizes.head_width;
  model.hidden = sizes.hidden;
  model.vocabulary = 32128;
  model.gated = sizes.gated;
  model.tied_head = !sizes.gated;
  if (sizes.gated) model.activation = trainer::Activation::kGeluTanh;
  return model;
}

const std::vector<KnownModel>& known_models() {
#define SPILLWAY_GPT2(name, ...) {name, gpt2(__VA_ARGS__)},
#define SPILLWAY_LLAMA(name, ...) {name, llama({__VA_ARGS__})},
#define SPILLWAY_T5(name, ...) {name, t5({__VA_ARGS__})},
  static const std::vector<KnownModel> models = {
#include "tools/spillway/plan/known_models.inc"
  };
#undef SPILLWAY_GPT2
#undef SPILLWAY_LLAMA
#undef SPILLWAY_T5
  return models;
}

// "meta-llama/Meta-Llama-3-8B" → {"meta", "llama", "3", "8b"}.
std::set<std::string> words_of(const std::string& name) {
  std::set<std::string> words;
  std::string word;
  for (const unsigned char c : name.substr(name.find('/') + 1) + "-") {
    if (std::isalnum(c) || c == '.') {
      word += char(std::tolower(c));
    } else if (!word.empty()) {
      words.insert(std::exchange(word, {}));
    }
  }
  return words;
}

}  // namespace

std::optional<trainer::Architecture> known_model(const std::string& name) {
  std::string wanted = name;
  std::ranges::transform(wanted, wanted.begin(), [](unsigned char c) { return char(std::tolower(c)); });
  for (const KnownModel& known : known_models())
    if (wanted == known.name) return known.model;
  return std::nullopt;
}

std::vector<std::string> models_named_like(const std::string& name) {
  const std::set<std::string> wanted = words_of(name);
  std::vector<std::string> names;
  if (wanted.empty()) return names;
  for (const KnownModel& known : known_models()) {
    const std::set<std::string> words = words_of(known.name);
    if (std::ranges::includes(words, wanted) || std::ranges::includes(wanted, words))
      names.emplace_back(known.name);
  }
  return names;
}

std::vector<std::string> known_model_names() {
  std::vector<std::string> names;
  for (const KnownModel& known : known_models()) names.emplace_back(known.name);
  return names;
}

}  // namespace spillway::tools
