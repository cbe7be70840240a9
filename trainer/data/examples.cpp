#include "trainer/data/examples.h"

#include "trainer/data/mix.h"

namespace spillway::trainer {
namespace {

constexpr uint64_t kValidationSeed = 0;

SpanMarks marks_of(const Architecture& model, const Vocabulary& vocabulary) {
  if (!model.has_decoder()) return {};
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
  if (!model.has_decoder()) return "";
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

}  // namespace

Examples::Examples(const Corpus& corpus, const Architecture& model)
    : corpus_(corpus),
      model_(model),
      target_tokens_(model.target_tokens()),
      row_tokens_(model.row_tokens()),
      marks_(marks_of(model, corpus.vocabulary())) {}

uint32_t Examples::window_tokens(const Architecture& model) {
  return model.has_decoder() ? span_sizes(model.context).raw_tokens : model.context + 1;
}

std::string Examples::fault_of(const Architecture& model, const Vocabulary& vocabulary) {
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

void Examples::draw(uint64_t seed, uint64_t cursor, uint32_t rows, std::span<int64_t> tokens) const {
  for (uint32_t i = 0; i < rows; ++i)
    make([&](std::span<int64_t> window) { corpus_.training_window(mix(seed, cursor + i), window); },
         mix(seed + 1, cursor + i), tokens.subspan(size_t{i} * row_tokens_, row_tokens_));
}

void Examples::validation_row(uint32_t index, uint32_t rows, std::span<int64_t> tokens) const {
  make([&](std::span<int64_t> window) { corpus_.validation_window(index, rows, window); },
       mix(kValidationSeed, index), tokens);
}

}  // namespace spillway::trainer
