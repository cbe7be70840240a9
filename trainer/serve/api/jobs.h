// What an engine is given for a request.
#pragma once
#include "trainer/serve/api/completion_request.h"
#include "trainer/serve/engine/engine.h"

namespace spillway::trainer::serve {

ModelCard card_of(const ServedModel& model, const std::string& name, uint64_t blocks);

// Of choice `index`; without its callbacks. Each choice of a prompt draws by a seed of its own.
Job job_of(const CompletionRequest& request, const ModelCard& card, size_t index);

}  // namespace spillway::trainer::serve
