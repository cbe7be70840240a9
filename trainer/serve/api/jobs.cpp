#include "trainer/serve/api/jobs.h"

#include <chrono>

#include "trainer/data/mix.h"

namespace spillway::trainer::serve {

ModelCard card_of(const ServedModel& model, const std::string& name, uint64_t blocks) {
  const Architecture& architecture = model.architecture();
  return {.name = name,
          .created = std::chrono::system_clock::to_time_t(std::chrono::system_clock::now()),
          .encodes = architecture.has_decoder(),
          .text = text_form_of(architecture),
          .vocabulary = architecture.vocabulary,
          .context = architecture.context,
          .ends = model.ends(),
          .most_blocks = blocks};
}

Job job_of(const CompletionRequest& request, const ModelCard& card, size_t index) {
  Job job{.prompt = request.prompt_of(index),
          .max_tokens = request.max_tokens,
          .sampling = request.sampling,
          .chances = request.logprobs};
  if (index > 0) job.sampling.seed = mix(request.sampling.seed, index);
  if (!request.ignore_end) job.ends = card.ends;
  job.ends.insert(job.ends.end(), request.stop_tokens.begin(), request.stop_tokens.end());
  return job;
}

}  // namespace spillway::trainer::serve
