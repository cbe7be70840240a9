// NCCL's registration of buffers in captured graphs, which computes wrong remote addresses for memory that is
// mapped from several handles (NVIDIA/nccl#2362), as Spillway's is.
//
// Thread-safety: called once, before NCCL is used. Errors: none.
#pragma once

namespace spillway::libtorch {

// Turns it off by NCCL_GRAPH_REGISTER=0, unless the user has set that or the NCCL in the process is new
// enough.
void leave_out_graph_registration();

}  // namespace spillway::libtorch
