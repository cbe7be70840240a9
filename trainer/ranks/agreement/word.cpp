#include "trainer/ranks/agreement/word.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <stdexcept>

namespace spillway::trainer {
namespace {

using Json = nlohmann::ordered_json;

// Thrown and caught here.
struct NoPlan : std::runtime_error {
  using std::runtime_error::runtime_error;
};

Plan plan_in(const Json& json, uint32_t layers) {
  std::string error;
  const auto plan = parse_plan(json.get<std::string>(), layers, Plan{}, &error);
  if (!plan) throw NoPlan(error);
  return *plan;
}

Json json_of(const Word& word) {
  return {{"rank", word.rank},
          {"step", word.step},
          {"attempt", word.attempt},
          {"says", word.says},
          {"before", to_toml(word.before)},
          {"plan", to_toml(word.plan)},
          {"guarantee", word.guarantee},
          {"action", word.action},
          {"phase", word.phase},
          {"reason", word.reason},
          {"incident", word.incident}};
}

Word word_in(const Json& json, uint32_t layers) {
  return {.rank = json.at("rank"),
          .step = json.at("step"),
          .attempt = json.at("attempt"),
          .says = json.at("says"),
          .before = plan_in(json.at("before"), layers),
          .plan = plan_in(json.at("plan"), layers),
          .guarantee = json.at("guarantee"),
          .action = json.at("action"),
          .phase = json.at("phase"),
          .reason = json.at("reason"),
          .incident = json.at("incident")};
}

// An allocator's text may have anything in it.
std::string text_of(const Json& json) {
  return json.dump(-1, ' ', false, Json::error_handler_t::replace);
}

template <typename Value, typename Read>
std::optional<Value> read_from(const std::string& text, const Read& read) {
  try {
    return read(Json::parse(text));
  } catch (const nlohmann::json::exception&) {
    return std::nullopt;
  } catch (const NoPlan&) {
    return std::nullopt;
  }
}

}  // namespace

std::string why_a_step_ends(uint32_t next, uint32_t attempts) {
  return next < attempts ? "no plan is left" : "its " + std::to_string(attempts) + " attempts are used up";
}

Decision decide(const std::vector<Word>& words, uint32_t attempts) {
  Decision decision{.what = Decision::What::kReplay, .attempt = 0, .joined = words.at(0).plan, .asked = {}};
  for (const Word& word : words) {
    if (word.step != words[0].step)
      throw std::logic_error("rank " + std::to_string(word.rank) + " is in step " +
                             std::to_string(word.step) + ", and another one in step " +
                             std::to_string(words[0].step));
    decision.attempt = std::max(decision.attempt, word.attempt);
    decision.joined = join(decision.joined, word.plan);
    if (word.says != Word::Says::kIsReady) decision.what = Decision::What::kAdopt;
    if (word.says == Word::Says::kAsks || word.says == Word::Says::kGivesUp) decision.asked.push_back(word);
  }
  std::ranges::sort(decision.asked, {}, &Word::rank);
  const auto end = [&](const Word& word, uint32_t next) {
    decision.what = Decision::What::kGiveUp;
    decision.ended_by = word.rank;
    decision.why_it_ends = why_a_step_ends(next, attempts);
    if (next < attempts) decision.why_it_ends += " on rank " + std::to_string(word.rank);
  };
  const auto gives_up = std::ranges::find(decision.asked, Word::Says::kGivesUp, &Word::says);
  if (gives_up != decision.asked.end())
    end(*gives_up, gives_up->attempt);
  else if (decision.attempt >= attempts && !decision.asked.empty())
    end(decision.asked.front(), decision.attempt);
  return decision;
}

Plan common_plan(const Plan& own, const Plan& joined, const SharedWork& work) {
  return work.has_sequence() ? normalised(with_sequence_of(own, joined, work)) : own;
}

std::string to_text(const Word& word) {
  return text_of(json_of(word));
}

std::string to_text(const Decision& decision) {
  Json asked = Json::array();
  for (const Word& word : decision.asked) asked.push_back(json_of(word));
  return text_of({{"what", decision.what},
                  {"attempt", decision.attempt},
                  {"joined", to_toml(decision.joined)},
                  {"ended_by", decision.ended_by},
                  {"why_it_ends", decision.why_it_ends},
                  {"asked", std::move(asked)}});
}

std::optional<Word> word_of(const std::string& text, uint32_t layers) {
  return read_from<Word>(text, [&](const Json& json) { return word_in(json, layers); });
}

std::optional<Decision> decision_of(const std::string& text, uint32_t layers) {
  return read_from<Decision>(text, [&](const Json& json) {
    Decision decision{.what = json.at("what"),
                      .attempt = json.at("attempt"),
                      .joined = plan_in(json.at("joined"), layers),
                      .asked = {},
                      .ended_by = json.at("ended_by"),
                      .why_it_ends = json.at("why_it_ends")};
    for (const Json& word : json.at("asked")) decision.asked.push_back(word_in(word, layers));
    return decision;
  });
}

}  // namespace spillway::trainer
