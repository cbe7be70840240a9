// A request that is being answered: what the engine tells of it, for the connection that waits.
//
// Thread-safety: the engine's thread and the connection's. Ownership: shared by both, so that either may end
// first. Errors: none.
#pragma once
#include <atomic>

#include "base/mutex.h"
#include "trainer/serve/api/completion_response.h"
#include "trainer/serve/engine/engine_thread.h"
#include "trainer/serve/http/asio.h"

namespace spillway::trainer::serve {

class PendingCompletion : public std::enable_shared_from_this<PendingCompletion> {
 public:
  PendingCompletion(CompletionRequest request, const ModelCard& card, asio::io_context* io);

  void submit(EngineThread* engine);
  // Nobody waits for it any more.
  void abandon();

  // Until there is something new, or a short time has passed.
  asio::awaitable<void> changed();
  // What has come since the last call, as the JSON of an answer's parts; whether all choices have ended.
  struct News {
    std::vector<std::string> parts;
    bool ended = false;
  };
  News news();

  // Once all have ended. The first end that is no answer: kNo if there is none.
  Finish fault() const;
  std::string whole() const;
  std::string usage() const;
  const CompletionRequest& request() const { return request_; }

 private:
  bool add(size_t index, const TokenEvent& event);
  void end(size_t index, Finish finish);
  void wake();

  const CompletionRequest request_;
  const ModelCard& card_;
  const Answer answer_;
  asio::io_context& io_;
  asio::steady_timer timer_;
  EngineThread* engine_ = nullptr;
  std::vector<uint64_t> tickets_;
  std::atomic<bool> abandoned_{false}, waking_{false};

  mutable Mutex<LockOrder::kLeaf> mutex_;
  std::vector<Choice> choices_ SPILLWAY_GUARDED_BY(mutex_);
  bool fresh_ SPILLWAY_GUARDED_BY(mutex_) = false;
};

}  // namespace spillway::trainer::serve
