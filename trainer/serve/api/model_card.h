// What a client must know of the model that is served, and what a request is checked against.
//
// Thread-safety: values.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "trainer/serve/text/vocabulary_text.h"

namespace spillway::trainer::serve {

struct ModelCard {
  std::string name;
  int64_t created = 0;   // seconds since 1970
  bool encodes = false;  // the prompt is what an encoder reads: T5
  TextForm text = TextForm::kTokenizer;
  uint32_t vocabulary = 0;
  // Of a prompt and what is made of it together; of a T5 each may be as long.
  uint32_t context = 0;
  std::vector<int64_t> ends{};  // tokens that end a text

  // Of the cache and of the server.
  uint64_t most_blocks = 0;
  uint32_t most_sequences_of_request = 128;
};

}  // namespace spillway::trainer::serve
