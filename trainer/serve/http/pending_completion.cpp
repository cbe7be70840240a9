#include "trainer/serve/http/pending_completion.h"

#include <algorithm>
#include <chrono>

#include "trainer/serve/api/jobs.h"

namespace spillway::trainer::serve {
namespace {

// After which the connection looks whether its client is still there.
constexpr auto kLook = std::chrono::milliseconds(200);

}  // namespace

PendingCompletion::PendingCompletion(CompletionRequest request, const ModelCard& card, asio::io_context* io)
    : request_(std::move(request)), card_(card), answer_(answer_to(request_, card)), io_(*io), timer_(*io) {
  for (size_t i = 0; i < request_.sequences(); ++i) choices_.emplace_back(request_, card_, i);
}

void PendingCompletion::submit(EngineThread* engine) {
  engine_ = engine;
  for (size_t i = 0; i < request_.sequences(); ++i) {
    Job job = job_of(request_, card_, i);
    job.on_token = [self = shared_from_this(), i](const TokenEvent& event) { return self->add(i, event); };
    job.on_end = [self = shared_from_this(), i](Finish finish) { self->end(i, finish); };
    tickets_.push_back(engine->submit(std::move(job)));
  }
}

void PendingCompletion::abandon() {
  if (abandoned_.exchange(true)) return;
  for (const uint64_t ticket : tickets_) engine_->cancel(ticket);
}

bool PendingCompletion::add(size_t index, const TokenEvent& event) {
  bool goes_on;
  {
    const Locked lock(mutex_);
    goes_on = choices_[index].add(event);
    fresh_ = true;
  }
  if (request_.stream) wake();
  return goes_on && !abandoned_;
}

void PendingCompletion::end(size_t index, Finish finish) {
  {
    const Locked lock(mutex_);
    choices_[index].end(finish);
    fresh_ = true;
  }
  wake();
}

void PendingCompletion::wake() {
  if (waking_.exchange(true)) return;
  asio::post(io_, [self = shared_from_this()] {
    self->waking_ = false;
    self->timer_.cancel();
  });
}

asio::awaitable<void> PendingCompletion::changed() {
  {
    const Locked lock(mutex_);
    if (fresh_) co_return;
  }
  // What comes now wakes it: the handler that `wake` posts runs on this thread, after it has begun to wait.
  error_code ignored;
  timer_.expires_after(kLook);
  co_await timer_.async_wait(asio::redirect_error(asio::use_awaitable, ignored));
}

PendingCompletion::News PendingCompletion::news() {
  const Locked lock(mutex_);
  News news{{}, std::ranges::all_of(choices_, &Choice::ended)};
  fresh_ = false;
  if (!request_.stream) return news;
  for (Choice& choice : choices_)
    if (choice.has_news()) news.parts.push_back(part_of_answer(answer_, choice.part()));
  return news;
}

std::string PendingCompletion::whole() const {
  const Locked lock(mutex_);
  return whole_answer(answer_, choices_);
}

std::string PendingCompletion::usage() const {
  const Locked lock(mutex_);
  return usage_part(answer_, choices_);
}

Finish PendingCompletion::fault() const {
  const Locked lock(mutex_);
  for (const Choice& choice : choices_)
    if (choice.finish() != Finish::kStop && choice.finish() != Finish::kLength) return choice.finish();
  return Finish::kNo;
}

}  // namespace spillway::trainer::serve
