#include "trainer/data/examples.h"

#include "trainer/data/mix.h"

namespace spillway::trainer {
namespace {

constexpr uint64_t kValidationSeed = 0;

SpanMarks marks_of(const Architecture& model, const Vocabulary& vocabulary) {
  if (!model.has_decoder() || model.has_pairs()) return {};
  if (vocabulary.of_bytes) return byte_marks(model.vocabulary, span_sizes(model.context).spans);
  return {.end = vocabulary.end.value_or(kEndOfSequence), .sentinels = vocabulary.sentinels};
}

std::string fault_of_bytes(const Architecture& model, uint32_t bytes) {
  const uint32_t least =
      bytes + (model.has_decoder() ? uint32_t(kFirstByte) + span_sizes(model.context).spans : 0);
  if (model.vocabulary >= least) return "";
  return "'model.vocabulary' (" + std::to_string(model.vocabulary) + ") must be at least " +
         std::to_string(least) +
         (model.has_decoder() ? ": every byte, a pad, an end, an unknown, and a sentinel for each span"
                              : ": a token for every byte");
}

std::string fault_of_tokens(const Architecture& model, const Vocabulary& vocabulary) {
  if (model.vocabulary < vocabulary.size)
    return "'model.vocabulary' (" + std::to_string(model.vocabulary) + ") must be at least " +
           std::to_string(vocabulary.size) + ": the vocabulary of the tokens in 'data.corpus'";
  if (!model.has_decoder() || vocabulary.of_pairs()) return "";
  const uint32_t spans = span_sizes(model.context).spans;
  if (vocabulary.sentinels.size() < spans)
    return "a t5 takes " + std::to_string(spans) + " spans out of 'model.context' (" +
           std::to_string(model.context) + "), and the tokenizer of 'data.corpus' has " +
           std::to_string(vocabulary.sentinels.size()) +
           " sentinels (<extra_id_0>, ...): see --sentinels of python -m spillway.tokenize";
  return vocabulary.end
             ? ""
             : "a t5 ends a sequence with an end of text, which the tokenizer of 'data.corpus' lacks";
}

std::string fault_of_pairs(const Architecture& model, const Vocabulary& vocabulary) {
  if (!model.has_decoder())
    return "'data.corpus' is a file of pairs, which a t5 learns from, and not a " +
           std::string(name_of(model.family)) + ": set 'model.family' or 'model.pretrained'";
  const auto fault = [](const char* key, uint32_t length, const char* side, uint32_t longest) {
    return "'" + std::string(key) + "' (" + std::to_string(length) + ") must be at least " +
           std::to_string(longest) + ", as the longest " + side +
           " in 'data.corpus': leave it out, or make the file again with --" + side + "-tokens " +
           std::to_string(length);
  };
  if (model.context < vocabulary.longest_source)
    return fault("model.context", model.context, "source", vocabulary.longest_source);
  if (model.target < vocabulary.longest_target)
    return fault("model.target", model.target, "target", vocabulary.longest_target);
  return "";
}

}  // namespace

Examples::Examples(const Corpus& corpus, const Architecture& model)
    : corpus_(corpus),
      model_(model),
      target_tokens_(model.target_tokens()),
      row_tokens_(model.row_tokens()),
      marks_(marks_of(model, corpus.vocabulary())) {}

uint32_t Examples::window_tokens(const Architecture& model) {
  if (model.has_pairs()) return 0;
  return model.has_decoder() ? span_sizes(model.context).raw_tokens : model.context + 1;
}

std::string Examples::fault_of(const Architecture& model, const Vocabulary& vocabulary) {
  if (vocabulary.of_pairs()) {
    if (std::string fault = fault_of_pairs(model, vocabulary); !fault.empty()) return fault;
  } else if (model.has_pairs()) {
    return "'model.target' is the length of a pair's target, and 'data.corpus' has no pairs";
  }
  return vocabulary.of_bytes ? fault_of_bytes(model, vocabulary.size) : fault_of_tokens(model, vocabulary);
}

template <typename Read>
void Examples::make(const Read& read, uint64_t seed, std::span<int64_t> row) const {
  if (!model_.has_decoder()) return read(row);
  std::vector<int64_t> text(window_tokens(model_));
  read(std::span(text));
  if (corpus_.vocabulary().of_bytes)
    for (int64_t& token : text) token += kFirstByte;
  corrupt_spans(model_.context, marks_, text, seed, row);
}

void Examples::draw_row(uint64_t seed, uint64_t number, std::span<int64_t> row) const {
  if (model_.has_pairs())
    return corpus_.training_pair(seed, number, row.first(model_.context), row.subspan(model_.context));
  make([&](std::span<int64_t> window) { corpus_.training_window(mix(seed, number), window); },
       mix(seed + 1, number), row);
}

void Examples::draw(uint64_t seed, uint64_t cursor, uint32_t rows, std::span<int64_t> tokens) const {
  for (uint32_t i = 0; i < rows; ++i)
    draw_row(seed, cursor + i, tokens.subspan(size_t{i} * row_tokens_, row_tokens_));
}

void Examples::validation_row(uint32_t index, uint32_t rows, std::span<int64_t> tokens) const {
  if (model_.has_pairs())
    return corpus_.validation_pair(index, rows, tokens.first(model_.context), tokens.subspan(model_.context));
  make([&](std::span<int64_t> window) { corpus_.validation_window(index, rows, window); },
       mix(kValidationSeed, index), tokens);
}

}  // namespace spillway::trainer
