// The completions interface over HTTP/1.1: POST /v1/completions, GET /v1/models and /health.
//
// One thread serves all connections, the engine has its own. A client that is gone has its sequences freed.
// SIGTERM or SIGINT drains: no more connections, what runs goes on, for at most `drain_seconds`; a second one
// ends at once.
//
// Thread-safety: one thread. Ownership: `serve` owns the engine. Errors: std::runtime_error, by the names of
// the options, where the address cannot be had; to clients as JSON of the form that they know.
#pragma once
#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "trainer/serve/api/model_card.h"
#include "trainer/serve/engine/engine.h"

namespace spillway::trainer::serve {

struct ServerOptions {
  std::string host = "127.0.0.1";
  uint16_t port = 8000;  // 0: any that is free
  uint64_t most_body_bytes = uint64_t{1} << 20;
  uint32_t most_waiting = 256, most_connections = 512, drain_seconds = 30;
};

class HttpServer {
 public:
  // Takes the address, so that a wrong one is an error before a model is loaded. Clients are refused until
  // `serve` listens.
  explicit HttpServer(const ServerOptions& options);
  ~HttpServer();
  HttpServer(const HttpServer&) = delete;
  HttpServer& operator=(const HttpServer&) = delete;

  // Serves until it is drained: true, or until the engine fails, which is said on the standard error.
  // `listening` is told the address once connections are taken. Once.
  bool serve(const ModelCard& card, std::unique_ptr<Engine> engine,
             const std::function<void(const std::string&)>& listening);

 private:
  struct Address;
  const ServerOptions options_;
  const std::unique_ptr<Address> address_;
};

}  // namespace spillway::trainer::serve
