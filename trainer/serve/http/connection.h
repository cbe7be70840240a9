// One client's connection: its requests, one after the other.
//
// Thread-safety: the server's thread. Ownership: shared by its coroutine and the server's list. Errors: what
// the client did wrong is answered; a connection that breaks ends.
#pragma once
#include "trainer/serve/http/pending_completion.h"
#include "trainer/serve/http/server.h"

namespace spillway::trainer::serve {

// What all connections share.
struct ServerState {
  const ServerOptions& options;
  const ModelCard& card;
  asio::io_context& io;
  EngineThread& engine;
  bool draining = false;
};

class Connection : public std::enable_shared_from_this<Connection> {
 public:
  Connection(ServerState* server, asio::ip::tcp::socket socket);

  // Until the client leaves, or the server drains.
  asio::awaitable<void> run();
  // No more requests; one that is under way is answered.
  void close_when_idle();
  // Now, with what is under way.
  void abort();

 private:
  using Request = http::request<http::string_body>;
  using Response = http::response<http::string_body>;

  asio::awaitable<bool> read(Request* request);  // false: the connection has ended
  asio::awaitable<void> read_away();
  asio::awaitable<void> answer(const Request& request);
  asio::awaitable<void> complete(const Request& request);
  asio::awaitable<void> answer_whole(PendingCompletion* pending);
  asio::awaitable<void> answer_stream(PendingCompletion* pending);
  asio::awaitable<void> send(unsigned status, std::string body);
  asio::awaitable<void> refuse(const ApiError& error);
  asio::awaitable<bool> send_chunk(std::string data);
  bool client_is_gone();
  std::string models() const;
  std::string health() const;

  ServerState& server_;
  boost::beast::tcp_stream stream_;
  boost::beast::flat_buffer buffer_;
  bool busy_ = false, keep_alive_ = true;
  unsigned version_ = 11;
  bool only_header_ = false;  // the request is a HEAD
  std::shared_ptr<PendingCompletion> pending_;
};

}  // namespace spillway::trainer::serve
