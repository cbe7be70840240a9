// What a program's description of a copy means as work.
//
// Thread-safety: used under the simulator's lock. Ownership: none. Errors: CUresult. Units: bytes.
#pragma once
#include "simulator/driver/work/work.h"

namespace spillway::simulator {

CUresult copy_work(const CUDA_MEMCPY2D* description, CopyWork& out);
CUresult copy_work(const CUDA_MEMCPY3D* description, CopyWork& out);

}  // namespace spillway::simulator
