// The version of CUDA that this library is a driver of. Libraries of several versions are linked from the
// same objects: each has a version of its own and exports what there was in it.
#pragma once

namespace spillway::simulator {

extern const int kDriverVersion;  // as 12080

}  // namespace spillway::simulator
