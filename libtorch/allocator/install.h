// The step of the installation that uses LibTorch's types; the loader calls it when the version is right.
#pragma once
#include <string>

namespace spillway::libtorch {

// Makes Spillway the CUDA allocator. "" when done, else why not. Not thread-safe: the loader serialises.
std::string install_allocator();

}  // namespace spillway::libtorch
