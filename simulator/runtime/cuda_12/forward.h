// The functions of libcudart.so.13, for what libcudart.so.12 does differently. They are looked for by name,
// because both libraries export most of them under the same names.
//
// Thread-safety: any thread. Ownership: the newer library stays loaded. Errors: nullptr for a name that it
// does not have.
#pragma once

#include <cuda_runtime_api.h>

namespace spillway::runtime_12 {

void* newer(const char* name);

}  // namespace spillway::runtime_12

// The newer library's function, with the type that the headers declare.
#define SPILLWAY_NEWER(name) reinterpret_cast<decltype(&(name))>(::spillway::runtime_12::newer(#name))
