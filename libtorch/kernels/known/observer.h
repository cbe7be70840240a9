// Where nothing is computed: follows PyTorch's operators and keeps what is known of small tensors true, so
// that sizes which went through device memory are the program's. Costs one to five microseconds an operator.
//
// Thread-safety: once; the observer runs on the thread of the operator. Ownership: it stays to the process's
// end. Errors: none.
#pragma once

namespace spillway::kernels {

// False: PyTorch's allocator is not there yet; to be called again.
bool observe_operators();

}  // namespace spillway::kernels
