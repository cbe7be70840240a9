// A model's folder as transformers' `from_pretrained` reads it: config.json and model.safetensors.
//
// Each file is written atomically (trainer/checkpoint/durable_file.h), the weights first: a folder without a
// config.json is no model yet.
//
// Thread-safety: one thread. Ownership: none kept. Errors: texts that name the file.
#pragma once
#include <string>
#include <vector>

#include "trainer/checkpoint/safetensors.h"
#include "trainer/plan/architecture.h"
#include "trainer/pretrained/text_marks.h"

namespace spillway::trainer {

// Makes the folder if need be. `items`: one for each parameter, under its name in the table, as F32; each is
// filled when it is due, so that one tensor is on the host at a time.
bool save_pretrained(const std::string& folder, const Architecture& model, const TextMarks& marks,
                     const std::vector<safetensors::Item>& items, std::string* error);

}  // namespace spillway::trainer
