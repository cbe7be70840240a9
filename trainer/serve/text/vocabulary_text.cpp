#include "trainer/serve/text/vocabulary_text.h"

namespace spillway::trainer::serve {
namespace {

constexpr int64_t kFirstByte = 3, kEnd = 1;  // of ByT5

int64_t first_byte(TextForm form) {
  return form == TextForm::kByT5 ? kFirstByte : 0;
}

}  // namespace

TextForm text_form_of(const Architecture& model) {
  if (model.family == Family::kT5) return model.vocabulary == 384 ? TextForm::kByT5 : TextForm::kTokenizer;
  return model.vocabulary == 256 ? TextForm::kBytes : TextForm::kTokenizer;
}

std::vector<int64_t> tokens_of(TextForm form, std::string_view text) {
  std::vector<int64_t> tokens;
  tokens.reserve(text.size() + 1);
  for (const char c : text) tokens.push_back(first_byte(form) + static_cast<unsigned char>(c));
  if (form == TextForm::kByT5) tokens.push_back(kEnd);
  return tokens;
}

std::string bytes_of(TextForm form, int64_t token) {
  const int64_t byte = token - first_byte(form);
  if (form == TextForm::kTokenizer || byte < 0 || byte > 255) return "";
  return std::string(1, static_cast<char>(byte));
}

}  // namespace spillway::trainer::serve
