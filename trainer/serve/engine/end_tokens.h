// The tokens that end a text, of 'eos_token_id' in a model's generation_config.json, or else its config.json:
// a number or a list; those that the vocabulary does not have are left out.
//
// Thread-safety: pure but for the files. Errors: none; a file that cannot be read has none.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

namespace spillway::trainer::serve {

std::vector<int64_t> end_tokens(const std::string& folder, uint32_t vocabulary);

}  // namespace spillway::trainer::serve
