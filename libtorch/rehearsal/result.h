// The probe's result: one JSON file a process, replaced whole.
//
// Thread-safety: any thread, with no lock of the allocator's held. Errors: a file that cannot be written is
// one line on stderr, once.
#pragma once

namespace spillway::rehearsal {

void write_result();

}  // namespace spillway::rehearsal
