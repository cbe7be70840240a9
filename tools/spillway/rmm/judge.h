// Why a request failed, of a file that has requests and nothing else (`MemoryHistory::requests_only`).
//
//   1. What grows covers what was missing: leak.
//   2. The capacity is known: what was in use and the request exceed it → capacity; else → fragmentation.
//   3. As much was in use at once earlier in the file → fragmentation.
//   4. Else unknown: nobody has said how much there was.
//
// Thread-safety: pure function. Units: bytes. Errors: none.
#pragma once
#include "tools/spillway/history/findings/findings.h"

namespace spillway::tools {

// `found`: of such a file, as look_into gives it. Sets the verdict, and takes away what the file does not
// tell.
void judge_by_requests(HistoryFindings* found);

}  // namespace spillway::tools
