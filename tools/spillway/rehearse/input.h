// The standard input of a program that is run several times: a file is read from where it was by each run, a
// terminal is shared, and what can be read only once, such as a pipe, is the first run's; the others find
// an empty one, which a line on standard error says.
//
// Thread-safety: none. Ownership: the caller closes the descriptor. Errors: none.
#pragma once

namespace spillway::tools {

// The descriptor that the next run reads, or -1: the standard input as it is.
int input_of_next_run();

}  // namespace spillway::tools
