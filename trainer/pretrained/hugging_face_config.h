// Hugging Face's config.json of a GPT-2, a Llama or a T5, to and from an Architecture. Reads what
// transformers 4 and 5 write; a key that is missing has transformers' default, but the sizes must be there. A
// setting that changes the mathematics in a way that the trainer does not have is an error, never passed
// over.
//
// Dropout is read apart, since only a training has it. The head of a T5 is tied exactly when the outputs of
// its decoder are scaled: transformers 4 writes that as 'tie_word_embeddings', transformers 5 as
// 'scale_decoder_outputs'.
//
// Thread-safety: pure functions, but for the file that is read. Errors: texts that name the file and the key.
// Units: tokens for contexts.
#pragma once
#include <cstdint>
#include <optional>
#include <string>

#include "trainer/plan/architecture.h"
#include "trainer/pretrained/text_marks.h"

namespace spillway::trainer {

// `path`: of the config.json. `context`: of the training; 0 for the file's own (512 for a T5 that names
// none). A GPT-2's and a Llama's may be shorter than the file's; a T5's may be any. The model keeps what it
// was made for.
std::optional<Architecture> read_hugging_face_config(const std::string& path, uint32_t context,
                                                     std::string* error);

// The dropout that transformers trains a model with. The trainer has one rate, of the embeddings and of what
// a layer adds to the residual.
struct FileDropout {
  double rate = 0;
  std::string fault;     // why one rate cannot say it, naming the keys; "": it can
  std::string left_out;  // what transformers drops besides, as a sentence; "": nothing
};
std::optional<FileDropout> read_hugging_face_dropout(const std::string& path, std::string* error);

// The text of a config.json that transformers loads, and that `read_hugging_face_config` reads back as the
// same model, apart from its dropout and from a context that was the training's alone. `marks`: of a text.
// REQUIRES: fault_of(model) is "".
std::string hugging_face_config(const Architecture& model, const TextMarks& marks);

}  // namespace spillway::trainer
