#include "trainer/serve/http/connection.h"

#include <sys/socket.h>

#include <chrono>
#include <nlohmann/json.hpp>
#include <tuple>

namespace spillway::trainer::serve {
namespace {

using nlohmann::ordered_json;

constexpr auto kIdle = std::chrono::seconds(60), kWrite = std::chrono::seconds(30);
constexpr auto kReadAway = std::chrono::seconds(5);
constexpr uint32_t kMostHeaderBytes = 16 << 10;
constexpr uint64_t kMostReadAway = 64 << 20;

auto yielding(error_code* error) {
  return asio::redirect_error(asio::use_awaitable, *error);
}

ApiError fault_of(Finish finish) {
  if (finish == Finish::kNoMemory)
    return {.status = 503,
            .message =
                "the device has no memory for this request, even alone: shorten it, or serve with a "
                "smaller --memory-utilization",
            .type = "server_error",
            .code = "out_of_memory"};
  if (finish == Finish::kCancelled)
    return {.status = 503, .message = "the server is shutting down", .type = "server_error"};
  return {.status = 500,
          .message = "the model's numbers are none: are its weights those of its config.json?",
          .type = "server_error"};
}

std::string path_of(std::string_view target) {
  return std::string(target.substr(0, target.find('?')));
}

}  // namespace

Connection::Connection(ServerState* server, asio::ip::tcp::socket socket)
    : server_(*server), stream_(std::move(socket)) {}

asio::awaitable<void> Connection::run() {
  const auto self = shared_from_this();
  while (keep_alive_ && !server_.draining) {
    Request request;
    if (!co_await read(&request)) break;
    busy_ = true;
    co_await answer(request);
    busy_ = false;
  }
  error_code ignored;
  std::ignore = stream_.socket().shutdown(asio::ip::tcp::socket::shutdown_both, ignored);
}

void Connection::close_when_idle() {
  if (!busy_) stream_.cancel();
}

void Connection::abort() {
  if (pending_) pending_->abandon();
  close_when_idle();
}

asio::awaitable<bool> Connection::read(Request* request) {
  http::request_parser<http::string_body> parser;
  parser.header_limit(kMostHeaderBytes);
  parser.body_limit(server_.options.most_body_bytes);
  stream_.expires_after(kIdle);
  error_code error;
  co_await http::async_read_header(stream_, buffer_, parser, yielding(&error));
  if (!error && boost::beast::iequals(parser.get()[http::field::expect], "100-continue")) {
    http::response<http::empty_body> proceed(http::status::continue_, 11);
    co_await http::async_write(stream_, proceed, yielding(&error));
  }
  if (!error) co_await http::async_read(stream_, buffer_, parser, yielding(&error));
  if (!error) {
    *request = parser.release();
    keep_alive_ = request->keep_alive();
    version_ = request->version();
    only_header_ = request->method() == http::verb::head;
    co_return true;
  }
  keep_alive_ = false;
  ApiError refusal{.message = "this is no request of HTTP: " + error.message()};
  if (error == http::error::body_limit)
    refusal = {
        .status = 413,
        .message = "the body has more than " + std::to_string(server_.options.most_body_bytes) + " bytes"};
  else if (error == http::error::header_limit)
    refusal = {.status = 431,
               .message = "the header has more than " + std::to_string(kMostHeaderBytes) + " bytes"};
  else if (error == http::error::end_of_stream || error == http::error::partial_message ||
           error.category() != http::make_error_code(http::error::bad_method).category())
    co_return false;  // it has gone, or was idle for too long
  co_await refuse(refusal);
  co_await read_away();
  co_return false;
}

// What the client still sends of a refused request: if it were left, the system would reset the connection,
// and the client would not see why.
asio::awaitable<void> Connection::read_away() {
  error_code error;
  std::ignore = stream_.socket().shutdown(asio::ip::tcp::socket::shutdown_send, error);
  stream_.expires_after(kReadAway);
  for (uint64_t bytes = 0; !error && bytes < kMostReadAway;) {
    buffer_.clear();
    bytes += co_await stream_.async_read_some(buffer_.prepare(64 << 10), yielding(&error));
  }
}

asio::awaitable<void> Connection::answer(const Request& request) {
  const std::string path = path_of({request.target().data(), request.target().size()});
  const bool posted = request.method() == http::verb::post;
  const bool got = request.method() == http::verb::get || only_header_;
  const bool known = path == "/v1/completions" || path == "/v1/models" || path == "/health";
  if (path == "/v1/completions" && posted) {
    co_await complete(request);
  } else if (path == "/v1/models" && got) {
    co_await send(200, models());
  } else if (path == "/health" && got) {
    co_await send(server_.engine.failure().empty() ? 200 : 503, health());
  } else {
    const ApiError refusal{
        .status = known ? 405 : 404,
        .message = known ? "this path has another method: POST for /v1/completions, else GET"
                         : "there is no '" + path + "': there are /v1/completions, /v1/models and /health"};
    co_await refuse(refusal);
  }
}

std::string Connection::models() const {
  const ModelCard& card = server_.card;
  const ordered_json model = {{"id", card.name},
                              {"object", "model"},
                              {"created", card.created},
                              {"owned_by", "spillway"},
                              {"max_model_len", card.context}};
  return ordered_json{{"object", "list"}, {"data", ordered_json::array({model})}}.dump(
      -1, ' ', false, ordered_json::error_handler_t::replace);
}

std::string Connection::health() const {
  const EngineStats stats = server_.engine.stats();
  return ordered_json{{"status", server_.engine.failure().empty() ? "ok" : "failed"},
                      {"running", stats.running},
                      {"waiting", stats.waiting},
                      {"blocks", stats.blocks},
                      {"free_blocks", stats.free_blocks},
                      {"steps", stats.steps},
                      {"tokens", stats.tokens},
                      {"preemptions", stats.preemptions},
                      {"out_of_memory", stats.out_of_memory}}
      .dump();
}

asio::awaitable<void> Connection::complete(const Request& request) {
  ApiError error;
  auto parsed = parse_completion(request.body(), server_.card, &error);
  if (parsed && server_.engine.stats().waiting >= server_.options.most_waiting) {
    error = {.status = 429, .message = "too many requests wait: try again later", .type = "server_error"};
    parsed.reset();
  }
  if (!parsed) {
    co_await refuse(error);
    co_return;
  }
  pending_ = std::make_shared<PendingCompletion>(std::move(*parsed), server_.card, &server_.io);
  pending_->submit(&server_.engine);
  if (pending_->request().stream)
    co_await answer_stream(pending_.get());
  else
    co_await answer_whole(pending_.get());
  pending_->abandon();
  pending_.reset();
}

asio::awaitable<void> Connection::answer_whole(PendingCompletion* pending) {
  while (!pending->news().ended) {
    if (client_is_gone()) {
      keep_alive_ = false;
      co_return;
    }
    co_await pending->changed();
  }
  const Finish fault = pending->fault();
  if (fault == Finish::kNo)
    co_await send(200, pending->whole());
  else
    co_await refuse(fault_of(fault));
}

asio::awaitable<void> Connection::answer_stream(PendingCompletion* pending) {
  http::response<http::empty_body> head(http::status::ok, version_);
  head.set(http::field::content_type, "text/event-stream");
  head.set(http::field::cache_control, "no-cache");
  const bool chunked = version_ >= 11;  // before that the end of the connection is that of the stream
  keep_alive_ = keep_alive_ && chunked;
  head.keep_alive(keep_alive_ && !server_.draining);
  head.chunked(chunked);
  http::response_serializer<http::empty_body> serializer(head);
  error_code error;
  stream_.expires_after(kWrite);
  co_await http::async_write_header(stream_, serializer, yielding(&error));
  keep_alive_ = keep_alive_ && !error;
  for (bool ended = false; !ended && !error;) {
    co_await pending->changed();
    const PendingCompletion::News news = pending->news();
    for (const std::string& part : news.parts)
      if (!co_await send_chunk(part)) co_return;
    ended = news.ended;
    if (!ended && client_is_gone()) {
      keep_alive_ = false;
      co_return;
    }
  }
  const Finish fault = pending->fault();
  if (fault != Finish::kNo && !co_await send_chunk(to_json(fault_of(fault)))) co_return;
  if (fault == Finish::kNo && pending->request().include_usage && !co_await send_chunk(pending->usage()))
    co_return;
  if (!co_await send_chunk("[DONE]") || !chunked) co_return;
  co_await asio::async_write(stream_, http::make_chunk_last(), yielding(&error));
}

// An event of the stream. False: the client is gone.
asio::awaitable<bool> Connection::send_chunk(std::string data) {
  const std::string event = "data: " + data + "\n\n";
  error_code error;
  stream_.expires_after(kWrite);
  if (version_ >= 11)
    co_await asio::async_write(stream_, http::make_chunk(asio::buffer(event)), yielding(&error));
  else
    co_await asio::async_write(stream_, asio::buffer(event), yielding(&error));
  keep_alive_ = keep_alive_ && !error;
  co_return !error;
}

asio::awaitable<void> Connection::refuse(const ApiError& error) {
  co_await send(static_cast<unsigned>(error.status), to_json(error));
}

asio::awaitable<void> Connection::send(unsigned status, std::string body) {
  Response response(http::int_to_status(status), version_);
  response.set(http::field::content_type, "application/json");
  response.keep_alive(keep_alive_ && !server_.draining);
  response.body() = std::move(body);
  response.prepare_payload();
  error_code error;
  stream_.expires_after(kWrite);
  if (only_header_) {  // that of the whole answer
    http::response_serializer<Response::body_type> serializer(response);
    co_await http::async_write_header(stream_, serializer, yielding(&error));
  } else {
    co_await http::async_write(stream_, response, yielding(&error));
  }
  keep_alive_ = keep_alive_ && !error;
}

// A client that has closed its side, or whose connection broke: no client of this interface closes one side
// and waits.
bool Connection::client_is_gone() {
  char byte = 0;
  const ssize_t seen = ::recv(stream_.socket().native_handle(), &byte, 1, MSG_PEEK | MSG_DONTWAIT);
  return seen == 0 || (seen < 0 && errno != EAGAIN && errno != EWOULDBLOCK && errno != EINTR);
}

}  // namespace spillway::trainer::serve
