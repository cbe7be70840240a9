// The completions interface over HTTP/1.1: POST /v1/completions, GET /v1/models and /health.
//
// One thread serves all connections, the engine has its own. A client that is gone has its sequences freed.
// SIGTERM or SIGINT drains: no more connections, what runs goes on, for at most `drain_seconds`; a second one
// ends at once.
//
// Thread-safety: one thread. Ownership: owns the engine. Errors: std::system_error where the address cannot
// be listened on; to clients as JSON of the form that they know.
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

// Serves until it is drained: true, or until the engine fails, which is said on the standard error.
// `listening` is told the address once connections are taken.
bool serve_http(const ServerOptions& options, const ModelCard& card, std::unique_ptr<Engine> engine,
                const std::function<void(const std::string&)>& listening);

}  // namespace spillway::trainer::serve
