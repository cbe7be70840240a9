// What a program that is stopped leaves running: a worker of its own, or the program itself where it was
// started by a script.
//
// Thread-safety: none; this process has no other children to wait for. Errors: none.
#pragma once

namespace spillway::tools {

// From now on a process of the program whose parent has ended becomes our child.
void adopt_orphans();
// Tells those that are there of `signal`, and ends what is not gone after a few seconds.
void end_orphans(int signal);

}  // namespace spillway::tools
