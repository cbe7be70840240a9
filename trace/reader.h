// Reading a trace file that may be damaged, cut short, foreign, or still being written by a live process.
// Nothing in the file is trusted: every offset, count and index is checked against the file's size before it
// is used. Thread-safety: `read` is a pure function of the file. Errors: a text that names the file, what is
// wrong and the byte offset where; a file that is merely incomplete yields what is whole and says so in
// `incomplete`.
#pragma once
#include <map>
#include <string>

#include "trace/record_list.h"
#include "trace/writing_process.h"

namespace spillway::trace {

struct Contents {
  RecordList records;                     // all rings, by order, then by ring and stamp
  std::map<uint64_t, std::string> names;  // side table: index → text
  std::map<std::string, std::string> settings;
  uint64_t process = 0;                // pid of the writer
  uint64_t started_ns = 0;             // when it opened the trace, ns of the Unix epoch
  bool closed = false;                 // the writer closed it or exited; else it was cut off, or still writes
  Liveness writer = Liveness::kEnded;  // when the trace was read
  uint64_t overwritten = 0;            // records that the rings no longer hold
  uint64_t overwritten_rare = 0;       // of those, failures, steps and other rare events
  uint64_t dropped = 0;                // records that found no ring
  uint64_t torn = 0;                   // slots whose stamp did not fit: a record cut off in the middle
  std::string incomplete;              // "" or why the file is not whole
};

// False and `error` where nothing can be read. On success `out` holds what is whole.
bool read(const std::string& path, Contents* out, std::string* error);

}  // namespace spillway::trace
