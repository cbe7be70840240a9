// The weights of a model as others saved them: whether they are those of a table of parameters, and their
// values as floats.
//
// A base model's file lacks the first part of the names ("h.0.ln_1.weight" for
// "transformer.h.0.ln_1.weight"); it is taken too. A tensor that the table does not have is an error, unless
// no model computes with it: masks and frequencies that old versions saved, and further copies of an
// embedding, which must equal it.
//
// Thread-safety: pure functions. Ownership: what `find_weight` gives belongs to the shards. Errors: texts
// that name the folder and the tensor.
#pragma once
#include <span>
#include <string>
#include <vector>

#include "trainer/plan/parameters/parameter_table.h"
#include "trainer/pretrained/shards.h"

namespace spillway::trainer {

// Every parameter is there with its shape, as F32, F16 or BF16, and nothing else is.
bool check_weights(const Shards& shards, const std::vector<Parameter>& table, std::string* error);

// The tensor of a parameter, also under its name in a base model; null when there is none.
const safetensors::StoredTensor* find_weight(const Shards& shards, const std::string& parameter);

// False when the type is none of F32, F16 and BF16, or when `out` has another number of elements; `out` is
// then as it was. Exact: every value of these types is a float.
bool read_floats(const safetensors::StoredTensor& tensor, std::span<float> out);

}  // namespace spillway::trainer
