// This process under the preloaded library: its mode, its place in the summary of `spillway run`, and the way
// to say something to the user.
//
// Thread-safety: any thread. Errors: a setting that is wrong is said once on standard error, and nothing is
// hooked up then: the program runs as without Spillway.
#pragma once
#include "spillway/interpose/summary.h"

namespace spillway::interpose {

Mode mode();
// $SPILLWAY_PRELOAD_QUIET unset: "spillway: <text>" on standard error.
void say(const char* text, const char* more = "");
[[noreturn]] void give_up(const char* text);

// Where this process counts: its slot of the summary, or memory of its own.
ProcessSummary& summary();

// The folder of this library with the slash at its end; Spillway's other libraries lie there.
const char* library_folder();

}  // namespace spillway::interpose
