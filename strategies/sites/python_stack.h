// The Python stack of the calling thread, read without the interpreter's lock (GIL).
//
// A thread's own frames do not change while it is inside a C call, and they keep their code objects alive, so
// they are read as plain memory. The fields' places differ between Python's versions and are not compiled in:
// a probe finds them once. It runs a few frames of its own under the GIL, looks for the values that Python's
// own functions report, and is believed only if a second stack then reads as it must. Known to work: CPython
// 3.11 to 3.15; one without a GIL is left alone.
//
// Thread-safety: every function may be called from any thread, with or without the GIL. Ownership: a frame is
// valid until the calling function returns to Python. Errors: without Python, before the probe has run, and
// with a Python whose frames it does not understand, every stack is empty.
#pragma once
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

namespace spillway {

struct PythonFrame {
  const void* code = nullptr;  // the PyCodeObject
  uint64_t instruction = 0;    // bytes from its first one
};

// Has Python's main thread run the probe as soon as it is between two instructions: once, or a few times
// where something disturbs it.
void prepare_python_stacks();
// Whether stacks can be taken from now on.
bool python_stacks_ready();

// The innermost frames, innermost first, as many as there are and fit; returns how many.
size_t python_stack(std::span<PythonFrame> frames);

// Of the names of its code: cheap, and different for nearly all that are.
uint64_t signature_of(const PythonFrame& frame);
// "/path/train.py:12 step". A name that is not ASCII is "?".
std::string text_of(const PythonFrame& frame);

}  // namespace spillway
