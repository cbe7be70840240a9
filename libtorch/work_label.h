// What a thread of autograd is doing, which has no Python stack: "backward of AddmmBackward0".
//
// Thread-safety: any thread. Takes no lock but one of its own and calls no Python, so that an allocator may
// ask. Errors: "" where no node runs on this thread.
#pragma once
#include <string>

namespace spillway::libtorch {

std::string work_label();

}  // namespace spillway::libtorch
