// Python, where the program is one: found in the process at run time, so that the probe needs no particular
// version of it, and none at all in a C++ program.
//
// Thread-safety: `name_sites` from any thread that holds no lock of the allocator's; it may wait for the GIL.
// `ask_python_to_name_sites` from any thread, with any lock. Errors: without Python nothing happens.
#pragma once

namespace spillway::rehearsal {

// Puts names to the stacks seen so far. Does nothing once the interpreter ends.
void name_sites();
// The same, by Python's main thread, as soon as it is between two instructions.
void ask_python_to_name_sites();
// Runs the probe's parts in python/spillway in the program, by Python's main thread.
void start_python_parts();

}  // namespace spillway::rehearsal
