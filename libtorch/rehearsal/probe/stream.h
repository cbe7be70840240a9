// The stream of allocator events as a file, one line an event, for `rehearse --trace`. Equal programs write
// equal files: there is no address and no clock in it, and frees that follow each other are in the order of
// their allocations. docs/rehearse.md has its form.
//
// Thread-safety: the state's lock. Errors: a file that cannot be opened is one line on stderr; one that ends
// early (a full disk) is in the result.
#pragma once
#include <cstdint>
#include <string>

#include "libtorch/rehearsal/site_table.h"

namespace spillway::rehearsal {

enum class StreamEvent : char {
  kAllocated = 'a',
  kFreed = 'f',
  kGrew = '+',
  kShrank = '-',
  kFailed = '!',
};

void open_stream();  // where SPILLWAY_REHEARSAL_STREAM says ("%p" is the process id), if it does
// `number`: bytes, or for kFreed the ordinal of the allocation.
void write_event(int device, const Ledger& ledger, StreamEvent event, uint64_t number, Site site);
void write_step(uint64_t step);
void flush_stream();  // but for the frees since the last other event
void close_stream();
std::string stream_error();  // why the file is not whole; "" while it is

}  // namespace spillway::rehearsal
