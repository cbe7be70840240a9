// Operators of other libraries than PyTorch (torchvision's nms and roi_align, torch_scatter's), computed by
// the CPU kernels that those libraries bring.
//
// A library registers an operator's kernels after the operator, and nobody tells when. So what is new is
// looked at with each operator that is computed here: a library's operators are used on tensors that one of
// PyTorch's made.
//
// Thread-safety: any number of threads. Errors: none; an operator without both kernels is left alone.
#pragma once

namespace spillway::kernels {

// Takes what is registered already, and hears of what will be. Once.
void watch_other_libraries();

// Cheap where nothing is new.
void adopt_other_libraries();

}  // namespace spillway::kernels
