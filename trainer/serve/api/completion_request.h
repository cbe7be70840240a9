// A request of the completions interface, `POST /v1/completions`, as JSON: read strictly. A key that would
// change the answer and is not supported is refused, and so is one that is not known.
//
// Thread-safety: pure functions. Errors: ApiError, with the status of HTTP, in the form that clients know.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "trainer/serve/api/model_card.h"
#include "trainer/serve/engine/sampler.h"

namespace spillway::trainer::serve {

struct ApiError {
  int status = 400;
  std::string message{}, type = "invalid_request_error", param{}, code{};
};
// {"error": {"message": ..., "type": ..., "param": ..., "code": ...}}
std::string to_json(const ApiError& error);

struct CompletionRequest {
  std::vector<std::vector<int64_t>> prompts;
  uint32_t max_tokens = 16, n = 1;
  Sampling sampling;  // its seed is drawn where the request has none
  std::vector<std::string> stops;
  std::vector<int64_t> stop_tokens;
  std::optional<uint32_t> logprobs;
  bool stream = false, include_usage = false, ignore_end = false;

  size_t sequences() const { return prompts.size() * n; }
  // Of choice `index`, in the order of the prompts.
  const std::vector<int64_t>& prompt_of(size_t index) const { return prompts[index / n]; }
};

std::optional<CompletionRequest> parse_completion(std::string_view body, const ModelCard& card,
                                                  ApiError* error);

}  // namespace spillway::trainer::serve
