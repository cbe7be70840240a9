// A training's parameters from a model's folder and into one.
//
// Thread-safety: one thread. Errors: `open_weights` and `save_parameters` give texts that name the file.
#pragma once
#include <memory>
#include <string>
#include <vector>

#include "trainer/model/model.h"
#include "trainer/pretrained/shards.h"
#include "trainer/pretrained/text_marks.h"

namespace spillway::trainer {

// The weights in `folder`, checked against the model's table; null with an error.
std::unique_ptr<Shards> open_weights(const std::string& folder, const Model& model, std::string* error);
// As floats in host memory, in the order of the table. REQUIRES: `weights` were opened for the model.
std::vector<at::Tensor> parameters_of(const Shards& weights, const Model& model);
// The same, each read when it is asked for.
InitialValues initial_values_of(std::shared_ptr<const Shards> weights, const Model& model);

// `value` gives each in the order of the table, on any device, when it is written.
bool save_parameters(const std::string& folder, const Model& model, const TextMarks& marks,
                     const InitialValues::Value& value, std::string* error);

}  // namespace spillway::trainer
