// What ranks exchange cannot be broken off by one of them: the others have made their part of it, and do not
// make it again.
//
// Thread-safety: pure. Errors: BrokenRound where memory runs out; all others pass through.
#pragma once
#include <stdexcept>
#include <string>

#include "trainer/libtorch.h"
#include "trainer/runtime/out_of_memory.h"

namespace spillway::trainer {

// This rank cannot end what the other ranks have made with it: it ends, and they with it.
struct BrokenRound : std::runtime_error {
  using std::runtime_error::runtime_error;
};

// `what`: such as "a sum over the ranks".
template <typename Work>
void in_a_round(const char* what, const Work& work) {
  try {
    work();
  } catch (const c10::Error& error) {
    const std::string text = error.what_without_backtrace();
    if (!says_out_of_memory(text) && !dynamic_cast<const c10::OutOfMemoryError*>(&error)) throw;
    throw BrokenRound("out of memory in the middle of " + std::string(what) + ": " + text);
  }
}

}  // namespace spillway::trainer
