// What a completion answers: collected token by token, as JSON whole or in parts.
//
// Thread-safety: one thread at a time. Ownership: borrows the card, which must outlive it.
#pragma once
#include <memory>
#include <string>
#include <vector>

#include "trainer/serve/api/completion_request.h"
#include "trainer/serve/engine/token_event.h"
#include "trainer/serve/text/text_stream.h"

namespace spillway::trainer::serve {

// One completion of a request.
class Choice {
 public:
  Choice(const CompletionRequest& request, const ModelCard& card, size_t index);
  ~Choice();
  Choice(Choice&&) noexcept;

  // False: it has reached a stop.
  bool add(const TokenEvent& event);
  void end(Finish finish);

  bool ended() const;
  Finish finish() const;
  uint64_t tokens() const;

  // An object of 'choices': all of it, or what has come since the last one that was taken.
  std::string whole() const;
  bool has_news() const;
  std::string part();

 private:
  struct State;
  std::unique_ptr<State> state_;
};

// The names and sizes of one answer.
struct Answer {
  std::string id;
  int64_t created = 0;
  const ModelCard* card = nullptr;
  uint64_t prompt_tokens = 0;
};
Answer answer_to(const CompletionRequest& request, const ModelCard& card);

std::string whole_answer(const Answer& answer, const std::vector<Choice>& choices);
// A part of a stream, without its "data: ".
std::string part_of_answer(const Answer& answer, const std::string& choice);
std::string usage_part(const Answer& answer, const std::vector<Choice>& choices);

}  // namespace spillway::trainer::serve
