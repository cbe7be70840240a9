#include "trainer/serve/evaluate/perplexity.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <fstream>
#include <iterator>

#include "trainer/app/results.h"
#include "trainer/data/token_file.h"
#include "trainer/model/head.h"
#include "trainer/serve/text/vocabulary_text.h"

namespace spillway::trainer::serve {
namespace {

// The losses of the last `predicted` tokens of a window [tokens].
double nats_of(const ServedModel& model, const std::vector<int64_t>& window, int64_t predicted) {
  const at::NoGradGuard no_grad;
  const at::Tensor tokens = at::tensor(window, at::kLong).unsqueeze(0);
  Head head = model.head_of_text(tokens.narrow(1, 0, tokens.size(1) - 1));
  head.hidden = head.hidden.narrow(1, head.hidden.size(1) - predicted, predicted);
  const at::Tensor targets = tokens.narrow(1, tokens.size(1) - predicted, predicted).to(head.hidden.device());
  const uint64_t bytes = uint64_t(predicted) * model.architecture().vocabulary * sizeof(float);
  const auto chunks = static_cast<uint32_t>((bytes - 1) / Perplexity::kMostLogitBytes + 1);
  return losses_by_row(head, targets, std::min<uint32_t>(chunks, uint32_t(predicted))).item().toDouble();
}

// A text as a view of its bytes, or a file of tokens.
struct Text {
  std::vector<std::byte> bytes;
  std::unique_ptr<TokenFile> file;
  TokenView tokens;
  uint64_t text_bytes = 0;
};

std::string fault_of_tokens(const TokenView& tokens, uint32_t vocabulary) {
  std::vector<int64_t> part(4096);
  for (uint64_t first = 0; first < tokens.size(); first += part.size()) {
    part.resize(std::min<uint64_t>(4096, tokens.size() - first));
    tokens.copy(first, part);
    for (size_t i = 0; i < part.size(); ++i)
      if (part[i] < 0 || part[i] >= int64_t{vocabulary})
        return "token " + std::to_string(first + i) + " is " + std::to_string(part[i]) +
               ", which the vocabulary of " + std::to_string(vocabulary) + " does not have";
  }
  return "";
}

std::string read_text(const std::string& path, const Architecture& model, Text* text) {
  std::string error;
  if (TokenFile::is_one(path)) {
    text->file = TokenFile::open(path, &error);
    if (!text->file) return error;
    text->tokens = text->file->tokens();
    text->text_bytes = text->file->text_bytes();
  } else {
    if (text_form_of(model) != TextForm::kBytes)
      return path +
             " is a text, and this model's tokens are a tokenizer's: make a file of tokens with python "
             "-m spillway.tokenize";
    std::ifstream in(path, std::ios::binary);
    if (!in) return path + ": cannot be read";
    const std::string all{std::istreambuf_iterator<char>(in), {}};
    const auto bytes = std::as_bytes(std::span(all));
    text->bytes.assign(bytes.begin(), bytes.end());
    text->tokens = TokenView(text->bytes, 1);
    text->text_bytes = text->bytes.size();
  }
  if (text->tokens.size() < 2) return path + ": has fewer than two tokens";
  error = fault_of_tokens(text->tokens, model.vocabulary);
  return error.empty() ? error : path + ": " + error;
}

std::string fault_of_windows(const Architecture& model, uint32_t context, uint32_t stride) {
  if (model.has_decoder()) return "the perplexity is of a text, and a t5 has pairs: give a gpt2 or a llama";
  if (context > model.context || context < 2)
    return "--window must be from 2 to " + std::to_string(model.context) + ", the context of the model";
  if (stride == 0 || stride >= context) return "--stride must be from 1 to " + std::to_string(context - 1);
  return "";
}

}  // namespace

Perplexity perplexity(const ServedModel& model, const TokenView& text, uint32_t context, uint32_t stride) {
  Perplexity result;
  std::vector<int64_t> window;
  for (uint64_t begin = 0, end = 0; end < text.size(); begin += stride) {
    const uint64_t from = end;
    end = std::min<uint64_t>(begin + context, text.size());
    window.resize(end - begin);
    text.copy(begin, window);
    const uint64_t predicted = from == 0 ? end - 1 : end - from;  // nothing comes before the first token
    result.nats += nats_of(model, window, int64_t(predicted));
    result.tokens += predicted;
    ++result.windows;
  }
  return result;
}

int print_perplexity(const ServedModel& model, const PerplexityOptions& options) {
  const Architecture& architecture = model.architecture();
  const uint32_t context = options.context ? options.context : architecture.context;
  const uint32_t stride = options.stride ? options.stride : std::max(1u, context / 2);
  Text text;
  std::string fault = fault_of_windows(architecture, context, stride);
  if (fault.empty()) fault = read_text(options.file, architecture, &text);
  if (!fault.empty()) return std::fprintf(stderr, "spillway-serve: %s\n", fault.c_str()), kExitUsage;
  const Perplexity found = perplexity(model, text.tokens, context, stride);
  std::printf("perplexity %.6g: %.6f nats a token, of %llu tokens in %llu windows of %u, %u apart\n",
              std::exp(found.nats_a_token()), found.nats_a_token(),
              static_cast<unsigned long long>(found.tokens), static_cast<unsigned long long>(found.windows),
              context, stride);
  if (text.text_bytes > 0)
    std::printf("%.6f nats and %.6f bits a byte of text, of %llu\n", found.nats / double(text.text_bytes),
                found.nats / std::log(2.0) / double(text.text_bytes),
                static_cast<unsigned long long>(text.text_bytes));
  return kExitDone;
}

}  // namespace spillway::trainer::serve
