#include "trainer/serve/api/completion_request.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "trainer/serve/api/completion_response.h"

namespace spillway::trainer::serve {
namespace {

using testing::HasSubstr;
using Tokens = std::vector<int64_t>;

const ModelCard kBytes{
    .name = "tiny", .text = TextForm::kBytes, .vocabulary = 256, .context = 64, .most_blocks = 3};

std::optional<CompletionRequest> parsed(const std::string& body, const ModelCard& card = kBytes) {
  ApiError error;
  auto request = parse_completion(body, card, &error);
  EXPECT_TRUE(request) << error.message;
  return request;
}

ApiError refused(const std::string& body, const ModelCard& card = kBytes) {
  ApiError error{.message = "it was taken"};
  EXPECT_FALSE(parse_completion(body, card, &error));
  return error;
}

TEST(CompletionRequest, HasTheUsualValuesWhereKeysAreMissing) {
  const auto request = parsed(R"({"model": "tiny", "prompt": "ab", "seed": null})");
  EXPECT_EQ(request->prompts, (std::vector<Tokens>{{97, 98}}));
  EXPECT_EQ(request->max_tokens, 16u);
  EXPECT_EQ(request->sampling.temperature, 1);
  EXPECT_EQ(request->n, 1u);
  EXPECT_FALSE(request->stream || request->logprobs);
}

TEST(CompletionRequest, TakesPromptsInEveryForm) {
  EXPECT_EQ(parsed(R"({"prompt": [1, 2]})")->prompts, (std::vector<Tokens>{{1, 2}}));
  EXPECT_EQ(parsed(R"({"prompt": ["a", "bc"]})")->prompts, (std::vector<Tokens>{{97}, {98, 99}}));
  EXPECT_EQ(parsed(R"({"prompt": [[1], [2, 3]], "n": 2})")->sequences(), 4u);
  EXPECT_EQ(parsed(R"({"prompt": [[1], [2, 3]], "n": 2})")->prompt_of(2), (Tokens{2, 3}));
}

TEST(CompletionRequest, TakesWhatClientsSend) {
  const auto request = parsed(
      R"({"prompt": "a", "max_tokens": 5, "temperature": 0.5, "top_p": 0.9, "top_k": 7, "seed": 3, "n": 2,
          "stop": ["x", "yz"], "stop_token_ids": [10], "stream": true, "stream_options": {"include_usage": true},
          "logprobs": 2, "user": "me", "echo": false, "best_of": 2, "presence_penalty": 0.0,
          "frequency_penalty": 0, "logit_bias": {}, "suffix": null, "ignore_eos": true})");
  EXPECT_EQ(request->sampling.seed, 3u);
  EXPECT_EQ(request->sampling.top_k, 7u);
  EXPECT_EQ(request->stops, (std::vector<std::string>{"x", "yz"}));
  EXPECT_EQ(request->stop_tokens, Tokens{10});
  EXPECT_TRUE(request->stream && request->include_usage && request->ignore_end);
  EXPECT_EQ(request->logprobs, 2u);
}

TEST(CompletionRequest, NamesWhatIsWrong) {
  const std::pair<const char*, const char*> cases[] = {
      {R"({})", "prompt"},
      {R"({"prompt": ""})", "prompt"},
      {R"({"prompt": []})", "prompt"},
      {R"({"prompt": 3})", "prompt"},
      {R"({"prompt": [256]})", "prompt"},
      {R"({"prompt": [1, "a"]})", "prompt"},
      {R"({"prompt": [-1]})", "prompt"},
      {R"({"prompt": "a", "max_tokens": 0})", "max_tokens"},
      {R"({"prompt": "a", "max_tokens": 1.5})", "max_tokens"},
      {R"({"prompt": "a", "temperature": -1})", "temperature"},
      {R"({"prompt": "a", "top_p": 1.1})", "top_p"},
      {R"({"prompt": "a", "n": 1000})", "n"},
      {R"({"prompt": "a", "seed": 1.5})", "seed"},
      {R"({"prompt": "a", "stop": ""})", "stop"},
      {R"({"prompt": "a", "stop": ["a", "b", "c", "d", "e"]})", "stop"},
      {R"({"prompt": "a", "stop_token_ids": [999]})", "stop_token_ids"},
      {R"({"prompt": "a", "stream": 1})", "stream"},
      {R"({"prompt": "a", "echo": true})", "echo"},
      {R"({"prompt": "a", "presence_penalty": 0.1})", "presence_penalty"},
      {R"({"prompt": "a", "best_of": 2})", "best_of"},
      {R"({"prompt": "a", "min_p": 0.1})", "min_p"},
  };
  for (const auto& [body, key] : cases) {
    const ApiError error = refused(body);
    EXPECT_EQ(error.param, key) << body << ": " << error.message;
    EXPECT_EQ(error.status, 400) << body;
    EXPECT_THAT(error.message, HasSubstr(key)) << body;
  }
  EXPECT_THAT(refused("{").message, HasSubstr("JSON"));
  EXPECT_THAT(refused("[1]").message, HasSubstr("JSON"));
  const std::string open(500'000, '['), closed(500'000, ']');
  EXPECT_THAT(refused(R"({"prompt": "a", "stop": )" + open + closed + "}").message,
              HasSubstr("more than 16 others"));
  EXPECT_TRUE(parsed(R"({"prompt": "\\\"[[[[[[[[[[[[[[[[[[[[["})")) << "those of a text count for nothing";
  EXPECT_EQ(refused(R"({"prompt": "a", "model": "gpt-4"})").status, 404);
  EXPECT_EQ(refused(R"({"prompt": "a", "model": "gpt-4"})").code, "model_not_found");
}

TEST(CompletionRequest, KnowsWhatTheContextAndTheCacheHold) {
  const std::string prompt(33, 'a');
  EXPECT_TRUE(parsed(R"({"max_tokens": 15, "prompt": ")" + prompt + "\"}"));
  EXPECT_THAT(refused(R"({"max_tokens": 16, "prompt": ")" + prompt + "\"}").message, HasSubstr("48"));
  EXPECT_EQ(refused(R"({"max_tokens": 32, "prompt": ")" + prompt + "\"}").code, "context_length_exceeded");
}

TEST(CompletionRequest, TextForATokenizersModelSaysHowToGiveTokens) {
  ModelCard card = kBytes;
  card.text = TextForm::kTokenizer;
  EXPECT_THAT(refused(R"({"prompt": "a"})", card).message, HasSubstr("Tokenizer.from_file"));
  EXPECT_THAT(refused(R"({"prompt": [1], "stop": "a"})", card).message, HasSubstr("stop_token_ids"));
  EXPECT_TRUE(parsed(R"({"prompt": [1]})", card));
}

TEST(CompletionRequest, ErrorsHaveTheFormThatClientsKnow) {
  const auto json = nlohmann::json::parse(to_json(refused(R"({"prompt": "a", "n": 0})")));
  EXPECT_EQ(json["error"]["type"], "invalid_request_error");
  EXPECT_EQ(json["error"]["param"], "n");
  EXPECT_TRUE(json["error"]["code"].is_null());
}

TEST(CompletionResponse, PartsMakeUpTheWhole) {
  const auto request = parsed(R"({"prompt": "a", "logprobs": 1, "stop": "cd"})");
  Choice whole(*request, kBytes, 0), parts(*request, kBytes, 0);
  std::string text;
  nlohmann::json last;
  for (const char c : std::string("ab\xC3\xA9"
                                  "cd")) {
    const TokenEvent event{static_cast<unsigned char>(c), {{c, -0.5f}, {98, -0.25f}}};
    EXPECT_EQ(whole.add(event), parts.add(event));
    ASSERT_TRUE(parts.has_news());
    last = nlohmann::json::parse(parts.part());
    text += last["text"].get<std::string>();
    EXPECT_EQ(last["token_ids"].size(), 1u);
    EXPECT_TRUE(last["finish_reason"].is_null());
  }
  whole.end(Finish::kStop), parts.end(Finish::kStop);
  last = nlohmann::json::parse(parts.part());
  EXPECT_EQ(last["finish_reason"], "stop");
  EXPECT_FALSE(parts.has_news());
  const auto json = nlohmann::json::parse(whole.whole());
  EXPECT_EQ(json["text"], "ab\xC3\xA9");
  EXPECT_EQ(text, json["text"]);
  EXPECT_EQ(json["token_ids"].size(), 6u);
  EXPECT_EQ(json["logprobs"]["token_logprobs"][0], -0.5);
  EXPECT_EQ(json["logprobs"]["top_logprobs"][0]["b"], -0.25);
  EXPECT_EQ(json["logprobs"]["tokens"][2], "bytes:\\xc3");
}

}  // namespace
}  // namespace spillway::trainer::serve
