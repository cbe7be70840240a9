// `spillway-serve generate`: completions of a file of requests, all in one batch.
#pragma once
#include <string>

#include "trainer/serve/api/model_card.h"
#include "trainer/serve/engine/engine.h"

namespace spillway::trainer::serve {

// `path` has a request of POST /v1/completions a line ("-": standard input); the answers go to the standard
// output, a line each, in their order. Errors of a request are its answer. An exit code.
int generate(const std::string& path, const ModelCard& card, Engine* engine);

}  // namespace spillway::trainer::serve
