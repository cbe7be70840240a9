// The last error's words, as ncclGetLastError gives them.
//
// Thread-safety: any thread. Ownership: texts are copied. Errors and units: none.
#pragma once
#include <nccl.h>

#include <string>

namespace spillway::nccl {

// Remembers why, and returns `result`.
ncclResult_t fail(ncclResult_t result, std::string why);

// Valid until the calling thread asks again.
const char* last_error();

// What the program will not see as the result of its call: said once, on stderr.
void say(const std::string& what);

}  // namespace spillway::nccl
