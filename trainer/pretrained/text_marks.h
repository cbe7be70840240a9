// The tokens that begin and end a text, of 'bos_token_id' and 'eos_token_id' in a model's
// generation_config.json, or else its config.json: a number or a list each; those that the vocabulary does
// not have are left out.
//
// Thread-safety: pure but for the files. Errors: none; a file that cannot be read has none.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace spillway::trainer {

struct TextMarks {
  // Nothing: neither file names them, so that they are transformers' default. Empty: there are none.
  std::optional<std::vector<int64_t>> begin, end;
};

TextMarks text_marks_of(const std::string& folder, uint32_t vocabulary);

}  // namespace spillway::trainer
