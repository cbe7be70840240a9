// The reader of Python's stacks as a library that a Python program loads: see test_python_stack.py.
#include "strategies/sites/python_stack.h"

#include <array>
#include <string>

namespace {
thread_local std::string text;

const char* stack_text() {
  std::array<spillway::PythonFrame, 64> frames;
  const size_t count = spillway::python_stack(frames);
  text.clear();
  for (size_t i = 0; i < count; ++i) text += spillway::text_of(frames[i]) + "\n";
  return text.c_str();
}
}  // namespace

extern "C" {
__attribute__((visibility("default"))) void prepare() {
  spillway::prepare_python_stacks();
}
__attribute__((visibility("default"))) int ready() {
  return spillway::python_stacks_ready() ? 1 : 0;
}
// Of the innermost frame; 0: there is none.
__attribute__((visibility("default"))) uint64_t signature() {
  std::array<spillway::PythonFrame, 1> frames;
  return spillway::python_stack(frames) == 0 ? 0 : spillway::signature_of(frames[0]);
}
// ctypes calls it without the GIL.
__attribute__((visibility("default"))) const char* stack() {
  return stack_text();
}
}
