// When the program's optimizers step, told to the core for the report: a program that knows nothing of
// Spillway marks no steps. PyTorch's own memory history takes the same notes
// (torch/csrc/cuda/memory_snapshot.cpp, recordAnnotation).
//
// Thread-safety: called once. Errors: none. Costs operators nothing: what is watched are the names that
// Python gives to stretches of its work, of which an optimizer's step is one.
#pragma once

namespace spillway::libtorch {

void watch_optimizer_steps();

}  // namespace spillway::libtorch
