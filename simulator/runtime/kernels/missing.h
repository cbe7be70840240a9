// What this runtime lacks. Apart from the other headers: the functions are declared here without parameters,
// as nobody looks at them.
//
// Thread-safety: any thread. Ownership: the name is a literal. Errors: cudaErrorNotSupported as an int.
#pragma once

namespace spillway::runtime {

// Says once for each name, on stderr, that it is not simulated.
int refuse_missing(const char* name);

}  // namespace spillway::runtime
