// This process under the preloaded library: its mode, its place in the summary of `spillway run`, and the way
// to say something to the user.
//
// Thread-safety: any thread. Errors: a mode that does not exist is said once on standard error, and taken for
// `observe`.
#pragma once
#include "spillway/interpose/summary.h"

namespace spillway::interpose {

Mode mode();
// "spillway: <text>" on standard error.
void say(const char* text, const char* more = "");
[[noreturn]] void give_up(const char* text);

// Where this process counts: its slot of the summary, or memory of its own.
ProcessSummary& summary();

// The folder of this library with the slash at its end; Spillway's other libraries lie there.
const char* library_folder();

}  // namespace spillway::interpose
