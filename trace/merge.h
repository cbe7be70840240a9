// The records of all rings in one order.
//
// Thread-safety: pure function. Errors: std::bad_alloc; four bytes a record, and at most as many again, are
// taken.
#pragma once
#include "trace/record_list.h"

namespace spillway::trace {

// By `order`; records of one order stay as they stand. Quick where the list is a few sorted parts, as the
// rings are. In place, since a second list is as large as the trace.
void merge_by_order(RecordList* records);

}  // namespace spillway::trace
