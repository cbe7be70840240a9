// A forward as a coroutine that stops where it goes on to another device, so that other micro-batches'
// forwards can run in between (trainer/step/micro_batches/pipeline.h).
//
// Passages await each other: the inner one's stop stops all, and who resumes goes on in the innermost. The
// frames hold what the functions' variables would; the parameters by reference must outlive them.
//
// Thread-safety: one thread at a time. Ownership: a passage owns its frame, and so those of what it awaits.
// Errors: an exception comes out of the `resume` or `finish` in which it was thrown.
#pragma once
#include <coroutine>
#include <exception>
#include <optional>
#include <stdexcept>
#include <utility>

namespace spillway::trainer {

template <typename Value>
class Passage {
 public:
  struct promise_type;
  using Handle = std::coroutine_handle<promise_type>;

  struct promise_type {
    // Goes on with who awaits.
    struct Last {
      bool await_ready() noexcept { return false; }
      std::coroutine_handle<> await_suspend(Handle handle) noexcept {
        const std::coroutine_handle<> awaiting = handle.promise().awaiting;
        return awaiting ? awaiting : std::noop_coroutine();
      }
      void await_resume() noexcept {}
    };

    Passage get_return_object() { return Passage(Handle::from_promise(*this)); }
    std::suspend_always initial_suspend() noexcept { return {}; }
    Last final_suspend() noexcept { return {}; }
    void return_value(Value result) { value = std::move(result); }
    void unhandled_exception() { error = std::current_exception(); }

    std::optional<Value> value;
    std::exception_ptr error;
    std::coroutine_handle<> awaiting;
  };

  Passage(Passage&& other) noexcept : handle_(std::exchange(other.handle_, {})) {}
  ~Passage() {
    if (handle_) handle_.destroy();
  }
  Passage(const Passage&) = delete;

  bool await_ready() const { return false; }
  std::coroutine_handle<> await_suspend(std::coroutine_handle<> awaiting) {
    handle_.promise().awaiting = awaiting;
    return handle_;
  }
  Value await_resume() { return take(); }

  std::coroutine_handle<> start() const { return handle_; }
  bool done() const { return handle_.done(); }
  // REQUIRES: done. Once.
  Value take() {
    if (handle_.promise().error) std::rethrow_exception(std::exchange(handle_.promise().error, nullptr));
    std::optional<Value> value = std::exchange(handle_.promise().value, std::nullopt);
    if (!value) throw std::logic_error("a passage that has not ended has no value");
    return *std::move(value);
  }
  // Of one that never stops.
  Value finish() {
    handle_.resume();
    return take();
  }

 private:
  explicit Passage(Handle handle) : handle_(handle) {}
  Handle handle_;
};

}  // namespace spillway::trainer
