// With `--values random` the simulated driver gives the host small whole numbers, since it knows bytes and no
// types. As floating point these bytes are next to nothing, so that no program would ever take the branch
// behind `loss.item() > 5`. What PyTorch reads as floating point is given the same numbers in its own type.
//
// Thread-safety: once. Ownership: the kernels stay to the process's end. Errors: c10::Error.
#pragma once

namespace spillway::rehearsal {

void give_floats_their_numbers();

}  // namespace spillway::rehearsal
