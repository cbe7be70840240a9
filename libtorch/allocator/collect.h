// What LibTorch only keeps for others, told to the core, which lets go of it first of all when memory is
// short.
//
// Thread-safety: called once. Errors: none.
#pragma once

namespace spillway::libtorch {

void collect_when_short();

}  // namespace spillway::libtorch
