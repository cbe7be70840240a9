// Counts what the program reads from a device, by the place that read it and by what the value is for.
//
// Thread-safety: `watch_reads` once. The observer runs on the reading thread, without any lock, and may take
// the GIL. Errors: none; without the simulator nothing is counted.
#pragma once

namespace spillway::rehearsal {

void watch_reads();

}  // namespace spillway::rehearsal
