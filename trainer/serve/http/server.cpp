#include "trainer/serve/http/server.h"

#include <chrono>
#include <csignal>
#include <cstdio>
#include <set>
#include <stdexcept>
#include <tuple>

#include "trainer/serve/http/connection.h"

namespace spillway::trainer::serve {
namespace {

// By the names of the options: what the system says of an address does not name it.
void check(const ServerOptions& options, error_code failed) {
  if (failed)
    throw std::runtime_error("cannot listen at --host " + options.host + " --port " +
                             std::to_string(options.port) + ": " + failed.message());
}

asio::ip::tcp::endpoint endpoint_of(const ServerOptions& options) {
  error_code error;
  const auto address = asio::ip::make_address(options.host, error);
  if (error)
    throw std::runtime_error("--host " + options.host +
                             ": is no address; give one of this machine's, such as 127.0.0.1 or 0.0.0.0");
  return {address, options.port};
}

}  // namespace

struct HttpServer::Address {
  explicit Address(const ServerOptions& options) {
    const asio::ip::tcp::endpoint endpoint = endpoint_of(options);
    error_code error;
    check(options, acceptor.open(endpoint.protocol(), error));
    check(options, acceptor.set_option(asio::socket_base::reuse_address(true), error));
    check(options, acceptor.bind(endpoint, error));
  }

  asio::io_context io{1};
  asio::ip::tcp::acceptor acceptor{io};
};

namespace {

class Server {
 public:
  Server(const ServerOptions& options, asio::io_context& io, asio::ip::tcp::acceptor& acceptor,
         const ModelCard& card, std::unique_ptr<Engine> engine)
      : options_(options),
        io_(io),
        acceptor_(acceptor),
        signals_(io_, SIGINT, SIGTERM),
        deadline_(io_),
        engine_(std::move(engine), [this] { asio::post(io_, [this] { engine_failed(); }); }),
        state_{options_, card, io_, engine_} {}

  bool run(const std::function<void(const std::string&)>& listening) {
    error_code error;
    check(options_, acceptor_.listen(asio::socket_base::max_listen_connections, error));
    asio::co_spawn(io_, accept(), asio::detached);
    wait_for_signal();
    const auto address = acceptor_.local_endpoint();
    const std::string host = address.address().to_string();
    listening("http://" + (address.address().is_v6() ? "[" + host + "]" : host) + ":" +
              std::to_string(address.port()));
    io_.run();
    const std::string why = engine_.failure();
    if (!why.empty()) std::fprintf(stderr, "spillway-serve: %s\n", why.c_str());
    return why.empty();
  }

 private:
  asio::awaitable<void> accept() {
    while (!state_.draining) {
      error_code error;
      auto socket = co_await acceptor_.async_accept(asio::redirect_error(asio::use_awaitable, error));
      if (error == asio::error::operation_aborted) co_return;
      if (error || connections_.size() >= options_.most_connections) {
        // Out of descriptors, or too many clients: those that are there go first.
        std::ignore = socket.close(error);
        asio::steady_timer pause(io_, std::chrono::milliseconds(20));
        co_await pause.async_wait(asio::redirect_error(asio::use_awaitable, error));
        continue;
      }
      std::ignore = socket.set_option(asio::ip::tcp::no_delay(true), error);
      auto connection = std::make_shared<Connection>(&state_, std::move(socket));
      connections_.insert(connection);
      asio::co_spawn(io_, connection->run(), [this, connection](const std::exception_ptr&) {
        connections_.erase(connection);
        stop_if_drained();
      });
    }
  }

  void wait_for_signal() {
    signals_.async_wait([this](error_code error, int) {
      if (error) return;
      if (state_.draining) return io_.stop();
      drain();
      wait_for_signal();
    });
  }

  void engine_failed() {
    if (!state_.draining) drain();
  }

  void drain() {
    state_.draining = true;
    error_code ignored;
    std::ignore = acceptor_.close(ignored);
    for (const auto& connection : connections_) connection->close_when_idle();
    deadline_.expires_after(std::chrono::seconds(options_.drain_seconds));
    deadline_.async_wait([this](error_code error) {
      if (!error) give_up();
    });
    stop_if_drained();
  }

  // What still runs is cancelled; its clients are told, if they listen.
  void give_up() {
    for (const auto& connection : connections_) connection->abort();
    deadline_.expires_after(std::chrono::seconds(1));
    deadline_.async_wait([this](error_code) { io_.stop(); });
  }

  void stop_if_drained() {
    if (state_.draining && connections_.empty()) io_.stop();
  }

  const ServerOptions options_;
  asio::io_context& io_;
  asio::ip::tcp::acceptor& acceptor_;
  asio::signal_set signals_;
  asio::steady_timer deadline_;
  std::set<std::shared_ptr<Connection>> connections_;
  EngineThread engine_;  // it ends before what its callbacks use
  ServerState state_;
};

}  // namespace

HttpServer::HttpServer(const ServerOptions& options)
    : options_(options), address_(std::make_unique<Address>(options)) {}

HttpServer::~HttpServer() = default;

bool HttpServer::serve(const ModelCard& card, std::unique_ptr<Engine> engine,
                       const std::function<void(const std::string&)>& listening) {
  return Server(options_, address_->io, address_->acceptor, card, std::move(engine)).run(listening);
}

}  // namespace spillway::trainer::serve
