// The interface of the LibTorch that a shim is built for: SPILLWAY_LIBTORCH is its version, 215 for 2.15. The
// allocator is one for all of them; what a version added stands in a file of its own, and members of
// PyTorch's structures that only some versions have are set where they are (`if constexpr (requires ...)`).
#pragma once
#include "libtorch/allocator/versions/since_2_14.h"

namespace spillway::libtorch {

#if SPILLWAY_LIBTORCH >= 214
using Interface = Since2_14;
#elif SPILLWAY_LIBTORCH >= 213
using Interface = Since2_13;
#elif SPILLWAY_LIBTORCH >= 212
using Interface = Since2_12;
#else
using Interface = Since2_11;
#endif

}  // namespace spillway::libtorch
