// Which tensors operators touch, told to the core from the moment when memory is short: what nobody touches
// is what may be moved away. Costs a program nothing before.
//
// Thread-safety: called once. Errors: none.
#pragma once

namespace spillway::libtorch {

// Asks the core to say when memory is short.
void watch_uses_under_pressure();

}  // namespace spillway::libtorch
