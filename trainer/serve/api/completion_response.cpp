#include "trainer/serve/api/completion_response.h"

#include <chrono>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <random>

namespace spillway::trainer::serve {
namespace {

using Json = nlohmann::ordered_json;

std::string dumped(const Json& json) {
  return json.dump(-1, ' ', false, Json::error_handler_t::replace);
}

Json reason(Finish finish) {
  switch (finish) {
    case Finish::kStop:
      return "stop";
    case Finish::kLength:
      return "length";
    case Finish::kNo:
      return nullptr;
    default:
      return "error";
  }
}

// A token as a word: its character, the bytes of what is none, or its id where a tokenizer would know it.
std::string word_of(const ModelCard& card, int64_t token) {
  const std::string bytes = bytes_of(card.text, token);
  if (bytes.empty()) return "token_id:" + std::to_string(token);
  if (static_cast<unsigned char>(bytes[0]) < 0x80) return bytes;
  char text[16];
  std::snprintf(text, sizeof text, "bytes:\\x%02x", static_cast<unsigned char>(bytes[0]));
  return text;
}
}  // namespace

struct Choice::State {
  struct LogProbabilities {
    Json words = Json::array(), own = Json::array(), likeliest = Json::array(), offsets = Json::array();

    void add(const ModelCard& card, const TokenEvent& event, size_t offset) {
      words.push_back(word_of(card, event.token));
      own.push_back(event.chances.at(0).log_probability);
      Json table = Json::object();
      for (size_t i = 1; i < event.chances.size(); ++i)
        table[word_of(card, event.chances[i].token)] = event.chances[i].log_probability;
      likeliest.push_back(std::move(table));
      offsets.push_back(offset);
    }
    Json to_json() const {
      return {
          {"tokens", words}, {"token_logprobs", own}, {"top_logprobs", likeliest}, {"text_offset", offsets}};
    }
  };

  struct Piece {
    std::string text;
    std::vector<int64_t> tokens;
    LogProbabilities chances;
  };

  const ModelCard& card;
  size_t index;
  bool wants_chances;
  TextStream stream;
  Finish finish = Finish::kNo;
  bool end_told = false;
  Piece all, fresh;

  void show(const std::string& text) {
    all.text += text;
    fresh.text += text;
  }
  std::string json_of(const Piece& piece) const {
    return dumped({{"text", piece.text},
                   {"index", index},
                   {"logprobs", wants_chances ? piece.chances.to_json() : Json()},
                   {"finish_reason", reason(finish)},
                   {"token_ids", piece.tokens}});
  }
};

Choice::Choice(const CompletionRequest& request, const ModelCard& card, size_t index)
    : state_(new State{
          card, index, request.logprobs.has_value(), TextStream(request.stops), Finish::kNo, false, {}, {}}) {
}
Choice::~Choice() = default;
Choice::Choice(Choice&&) noexcept = default;

bool Choice::add(const TokenEvent& event) {
  State& state = *state_;
  for (State::Piece* piece : {&state.all, &state.fresh}) {
    piece->tokens.push_back(event.token);
    if (state.wants_chances) piece->chances.add(state.card, event, state.all.text.size());
  }
  state.show(state.stream.add(bytes_of(state.card.text, event.token)));
  return !state.stream.stopped();
}

void Choice::end(Finish finish) {
  state_->show(state_->stream.finish());
  state_->finish = finish;
}

bool Choice::ended() const {
  return state_->finish != Finish::kNo;
}
Finish Choice::finish() const {
  return state_->finish;
}
uint64_t Choice::tokens() const {
  return state_->all.tokens.size();
}
std::string Choice::whole() const {
  return state_->json_of(state_->all);
}

bool Choice::has_news() const {
  return !state_->fresh.tokens.empty() || (ended() && !state_->end_told);
}

std::string Choice::part() {
  std::string json = state_->json_of(state_->fresh);
  state_->fresh = {};
  state_->end_told = ended();
  return json;
}

Answer answer_to(const CompletionRequest& request, const ModelCard& card) {
  std::random_device random;
  char id[40];
  std::snprintf(id, sizeof id, "cmpl-%08x%08x%08x", random(), random(), random());
  Answer answer{id, std::chrono::system_clock::to_time_t(std::chrono::system_clock::now()), &card};
  for (const auto& prompt : request.prompts) answer.prompt_tokens += prompt.size();
  return answer;
}

namespace {

// `choices` is the inside of the list, as JSON.
std::string enclosed(const Answer& answer, const std::string& choices, const Json& usage) {
  return R"({"id":)" + dumped(answer.id) + R"(,"object":"text_completion","created":)" +
         std::to_string(answer.created) + R"(,"model":)" + dumped(answer.card->name) + R"(,"choices":[)" +
         choices + "]" + (usage.is_null() ? "" : R"(,"usage":)" + dumped(usage)) + "}";
}

Json usage_of(const Answer& answer, const std::vector<Choice>& choices) {
  uint64_t made = 0;
  for (const Choice& choice : choices) made += choice.tokens();
  return {{"prompt_tokens", answer.prompt_tokens},
          {"completion_tokens", made},
          {"total_tokens", answer.prompt_tokens + made}};
}

}  // namespace

std::string whole_answer(const Answer& answer, const std::vector<Choice>& choices) {
  std::string list;
  for (const Choice& choice : choices) list += (list.empty() ? "" : ",") + choice.whole();
  return enclosed(answer, list, usage_of(answer, choices));
}

std::string part_of_answer(const Answer& answer, const std::string& choice) {
  return enclosed(answer, choice, nullptr);
}

std::string usage_part(const Answer& answer, const std::vector<Choice>& choices) {
  return enclosed(answer, "", usage_of(answer, choices));
}

}  // namespace spillway::trainer::serve
