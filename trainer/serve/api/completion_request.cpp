#include "trainer/serve/api/completion_request.h"

#include <algorithm>
#include <limits>
#include <nlohmann/json.hpp>
#include <random>

#include "trainer/pretrained/json_keys.h"
#include "trainer/serve/batching/block_pool.h"

namespace spillway::trainer::serve {
namespace {

using nlohmann::json;

constexpr uint32_t kMostNesting = 16, kMostStops = 4, kMostLogprobs = 20, kMostStopBytes = 256;
constexpr const char* kKnown[] = {"model",
                                  "prompt",
                                  "max_tokens",
                                  "n",
                                  "temperature",
                                  "top_p",
                                  "top_k",
                                  "seed",
                                  "stop",
                                  "stream",
                                  "user",
                                  "stream_options",
                                  "logprobs",
                                  "stop_token_ids",
                                  "ignore_eos",
                                  "echo",
                                  "suffix",
                                  "best_of",
                                  "logit_bias",
                                  "presence_penalty",
                                  "frequency_penalty"};

// The first fault, with the key that has it.
class Fault {
 public:
  explicit Fault(ApiError* error) : error_(*error) {}
  bool set() const { return set_; }
  void say(const std::string& key, const std::string& text, int status = 400, const char* code = "") {
    if (set_) return;
    set_ = true;
    error_ = {.status = status, .message = text, .param = key, .code = code};
  }

 private:
  ApiError& error_;
  bool set_ = false;
};

class Reader {
 public:
  Reader(const json& object, const ModelCard& card, ApiError* error)
      : object_(object), card_(card), keys_(object), fault_(error) {}

  std::optional<CompletionRequest> read() {
    check_keys();
    check_model();
    read_numbers();
    read_stops();
    read_seed();
    read_prompts();
    if (!fault_.set()) check_sizes();
    if (fault_.set()) return std::nullopt;
    return std::move(request_);
  }

 private:
  void check_keys() {
    for (const auto& [key, value] : object_.items())
      if (std::ranges::find(kKnown, key) == std::end(kKnown))
        fault_.say(key, "there is no parameter '" + key + "'");
    refuse("suffix", [](const json&) { return true; });
    refuse("echo", [](const json& value) { return value != false; });
    refuse("logit_bias", [](const json& value) { return !value.empty(); });
    for (const char* key : {"presence_penalty", "frequency_penalty"})
      refuse(key, [](const json& value) { return value != 0; });
    refuse("best_of", [&](const json& value) { return value != object_.value("n", json(1)); });
  }

  // A value that asks for what there is not.
  void refuse(const char* key, const auto& asks) {
    const json* value = keys_.find(key);
    if (value && asks(*value)) fault_.say(key, "'" + std::string(key) + "' is not supported: leave it out");
  }

  void check_model() {
    std::string name = card_.name;
    of("model", [&] { keys_.text("model", &name); });
    if (name != card_.name)
      fault_.say("model", "there is no model '" + name + "': this server has '" + card_.name + "'", 404,
                 "model_not_found");
  }

  // Reads a key, and takes over its fault.
  void of(const char* key, const auto& read) {
    read();
    if (keys_.failed()) fault_.say(key, keys_.error());
  }

  void read_numbers() {
    Sampling& sampling = request_.sampling;
    of("max_tokens", [&] { keys_.integer("max_tokens", &request_.max_tokens, 1, card_.context); });
    of("n", [&] { keys_.integer("n", &request_.n, 1, card_.most_sequences_of_request); });
    of("temperature", [&] { keys_.number("temperature", &sampling.temperature, 0, 100); });
    of("top_p", [&] { keys_.number("top_p", &sampling.top_p, 0, 1); });
    of("top_k", [&] { keys_.integer("top_k", &sampling.top_k, 0, card_.vocabulary); });
    of("stream", [&] { keys_.flag("stream", &request_.stream); });
    of("ignore_eos", [&] { keys_.flag("ignore_eos", &request_.ignore_end); });
    if (keys_.find("logprobs")) {
      uint32_t logprobs = 0;
      of("logprobs", [&] { keys_.integer("logprobs", &logprobs, 0, kMostLogprobs); });
      request_.logprobs = logprobs;
    }
    if (const json* options = keys_.find("stream_options"); options && options->is_object())
      request_.include_usage = options->value("include_usage", json(false)) == true;
  }

  void read_stops() {
    if (const json* stop = keys_.find("stop")) {
      const json list = stop->is_array() ? *stop : json::array({*stop});
      for (const json& text : list)
        if (!text.is_string() || text.get_ref<const std::string&>().empty() ||
            text.get_ref<const std::string&>().size() > kMostStopBytes)
          fault_.say("stop", "'stop' must be texts of 1 to " + std::to_string(kMostStopBytes) + " bytes");
        else
          request_.stops.push_back(text.get<std::string>());
      if (list.size() > kMostStops)
        fault_.say("stop", "'stop' has more than " + std::to_string(kMostStops) + " texts");
      if (!list.empty() && card_.text == TextForm::kTokenizer)
        fault_.say("stop", "this model's tokens are a tokenizer's: give 'stop_token_ids'");
    }
    if (const json* stop = keys_.find("stop_token_ids"))
      read_ids("stop_token_ids", *stop, &request_.stop_tokens);
  }

  void read_ids(const char* key, const json& list, std::vector<int64_t>* ids) {
    if (!list.is_array()) return fault_.say(key, "'" + std::string(key) + "' must be a list of token ids");
    for (const json& id : list) {
      if (!id.is_number_unsigned() || id.get<uint64_t>() >= card_.vocabulary)
        return fault_.say(
            key, "'" + std::string(key) + "' must have token ids below " + std::to_string(card_.vocabulary));
      ids->push_back(id.get<int64_t>());
    }
  }

  void read_seed() {
    const json* seed = keys_.find("seed");
    if (!seed) {
      std::random_device random;
      request_.sampling.seed = uint64_t{random()} << 32 | random();
    } else if (seed->is_number_integer()) {
      request_.sampling.seed = seed->get<uint64_t>();
    } else {
      fault_.say("seed", "'seed' must be a whole number");
    }
  }

  // A text, ids, or a list of either.
  void read_prompts() {
    const json* prompt = keys_.find("prompt");
    if (!prompt) return fault_.say("prompt", "'prompt' is missing");
    const bool one =
        prompt->is_string() || (prompt->is_array() && !prompt->empty() && (*prompt)[0].is_number());
    if (one) return read_prompt(*prompt);
    if (!prompt->is_array())
      return fault_.say("prompt", "'prompt' must be a text, token ids, or a list of these");
    if (prompt->size() * request_.n > card_.most_sequences_of_request)
      return fault_.say("prompt", "a request may have at most " +
                                      std::to_string(card_.most_sequences_of_request) + " completions");
    for (const json& each : *prompt) read_prompt(each);
    if (prompt->empty()) fault_.say("prompt", "'prompt' is empty");
  }

  void read_prompt(const json& prompt) {
    std::vector<int64_t> tokens;
    if (!prompt.is_string())
      read_ids("prompt", prompt, &tokens);
    else if (card_.text == TextForm::kTokenizer)
      return fault_.say(
          "prompt",
          "this model's tokens are a tokenizer's, which this server does not have: give 'prompt' "
          "as token ids, such as those of 'from tokenizers import Tokenizer; "
          "Tokenizer.from_file(\"tokenizer.json\").encode(text).ids' in Python");
    else
      tokens = tokens_of(card_.text, prompt.get_ref<const std::string&>());
    if (tokens.empty()) fault_.say("prompt", "'prompt' is empty");
    request_.prompts.push_back(std::move(tokens));
  }

  void check_sizes() {
    for (const auto& prompt : request_.prompts) {
      const uint64_t together = (card_.encodes ? 0 : prompt.size()) + request_.max_tokens;
      const uint64_t longest = std::max<uint64_t>(together, prompt.size());
      if (longest > card_.context)
        fault_.say("prompt",
                   "the prompt has " + std::to_string(prompt.size()) + " tokens and 'max_tokens' is " +
                       std::to_string(request_.max_tokens) + ", and the context has " +
                       std::to_string(card_.context),
                   400, "context_length_exceeded");
      const uint64_t blocks = card_.encodes ? blocks_for(prompt.size()) + blocks_for(request_.max_tokens + 1)
                                            : blocks_for(together);
      if (blocks > card_.most_blocks)
        fault_.say("prompt", "the request needs " + std::to_string(blocks * kBlockTokens) +
                                 " tokens of the cache, which has " +
                                 std::to_string(card_.most_blocks * kBlockTokens));
    }
  }

  const json& object_;
  const ModelCard& card_;
  JsonKeys keys_;
  Fault fault_;
  CompletionRequest request_;
};

// Copies of deep values, and their texts, are recursive: they would take all of the stack.
bool is_nested_deeply(std::string_view body) {
  uint32_t depth = 0;
  bool in_text = false;
  for (size_t i = 0; i < body.size(); ++i) {
    const char letter = body[i];
    if (in_text) {
      i += letter == '\\' ? 1 : 0;
      in_text = letter != '"';
      continue;
    }
    in_text = letter == '"';
    if (letter == '[' || letter == '{') ++depth;
    if ((letter == ']' || letter == '}') && depth > 0) --depth;
    if (depth > kMostNesting) return true;
  }
  return false;
}

}  // namespace

std::string to_json(const ApiError& error) {
  const auto or_null = [](const std::string& text) { return text.empty() ? json() : json(text); };
  return json{{"error",
               {{"message", error.message},
                {"type", error.type},
                {"param", or_null(error.param)},
                {"code", or_null(error.code)}}}}
      .dump(-1, ' ', false, json::error_handler_t::replace);
}

std::optional<CompletionRequest> parse_completion(std::string_view body, const ModelCard& card,
                                                  ApiError* error) {
  if (is_nested_deeply(body))
    return *error = {.message = "the body has lists and objects in more than " +
                                std::to_string(kMostNesting) + " others"},
           std::nullopt;
  const json object = json::parse(body, nullptr, false);
  if (!object.is_object()) return *error = {.message = "the body is no JSON object"}, std::nullopt;
  return Reader(object, card, error).read();
}

}  // namespace spillway::trainer::serve
