// A step of a program's own that is redone when it runs out of memory: what the trainer's recoverable step
// does for one that has no plan. Header only; it knows neither CUDA nor Spillway's libraries.
//
//   const auto step = spillway::recover<OutOfMemory>([&] { return train(batch, micro_batch); },
//                                                    [&] { gradients.clear(); random.restore(); },
//                                                    [&](uint32_t failures) { return halve(&micro_batch); });
//   if (!step) return give_up(step.last_failure);
//   optimizer.commit();   // outside: what must happen once
//
// Thread-safety: none of its own; the three functions are called on the caller's thread. Ownership: keeps
// nothing. Errors: `Error` that `is_out_of_memory` accepts is a failure of the attempt; any other exception,
// and every one of `undo` and `make_room`, passes through. It allocates no device memory.
#pragma once
#include <cstdint>
#include <new>
#include <optional>
#include <string>
#include <type_traits>
#include <utility>
#include <variant>

namespace spillway {

// What came of a step. `Result` is std::monostate where the attempt returns nothing.
template <class Result>
struct Recovered {
  std::optional<Result> result;  // none: nothing gave memory any more, and the last attempt is undone
  uint32_t failures = 0;         // attempts that ran out of memory
  std::string last_failure;      // what the last of them said

  explicit operator bool() const { return result.has_value(); }
};

struct EveryError {
  template <class Error>
  bool operator()(const Error&) const {
    return true;
  }
};

namespace recovery {

template <class Attempt>
using ResultOf = std::conditional_t<std::is_void_v<std::invoke_result_t<Attempt&>>, std::monostate,
                                    std::invoke_result_t<Attempt&>>;

template <class Attempt>
ResultOf<Attempt> result_of(Attempt& attempt) {
  if constexpr (std::is_void_v<std::invoke_result_t<Attempt&>>) {
    attempt();
    return {};
  } else {
    return attempt();
  }
}

// The attempt's result, or none with the failure's text. The exception is gone when it returns: what it keeps
// alive is the memory that is short.
template <class Error, class Attempt, class Predicate>
std::optional<ResultOf<Attempt>> try_once(Attempt& attempt, Predicate& is_out_of_memory, std::string* text) {
  try {
    return result_of(attempt);
  } catch (const Error& error) {
    if (!is_out_of_memory(error)) throw;
    *text = error.what();
  }
  return std::nullopt;
}

}  // namespace recovery

// Calls `attempt` until it returns. After each failure, outside the catch block, `undo` puts back what the
// attempt changed, and `make_room(failures)` frees memory or changes how the next attempt computes: true if
// another one is worth it. There are at most `attempts`, at least one: memory that is given and does not
// suffice ends too.
template <class Error = std::bad_alloc, class Attempt, class Undo, class MakeRoom,
          class Predicate = EveryError>
Recovered<recovery::ResultOf<Attempt>> recover(Attempt&& attempt, Undo&& undo, MakeRoom&& make_room,
                                               uint32_t attempts = 8, Predicate is_out_of_memory = {}) {
  Recovered<recovery::ResultOf<Attempt>> recovered;
  while (true) {
    recovered.result = recovery::try_once<Error>(attempt, is_out_of_memory, &recovered.last_failure);
    if (recovered.result) return recovered;
    ++recovered.failures;
    undo();
    if (recovered.failures >= attempts || !make_room(recovered.failures)) return recovered;
  }
}

}  // namespace spillway
