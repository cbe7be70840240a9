// Kernels in CUDA C++, compiled by NVRTC for the card that is there.
//
// PyTorch's packages bring NVRTC, so that no machine needs nvcc, and it is found where PyTorch finds it.
// Products and sums are not contracted, division and root are rounded to the nearest, and subnormal numbers
// are kept: the arithmetic is that of a processor.
//
// Thread-safety: any thread. Ownership: a loaded library and a loaded kernel stay for the life of the
// process. Errors: texts for people.
#pragma once
#include <cuda.h>
#include <nvrtc.h>

#include <optional>
#include <string>
#include <vector>

#include "driver/table.h"

namespace spillway::trainer {

struct DeviceSource {
  struct File {
    const char* name;  // as it is included
    const char* text;
  };
  std::vector<File> files;  // the first one is compiled; it may include the others
};

struct DeviceBinary {
  std::string cubin;
  std::string ptx;  // of which the binary was made
  std::string log;  // of the compiler, with what the kernels take of a card
};

// Why there is no kernel.
struct NoKernel {
  std::string text;             // for people
  bool may_come_later = false;  // there was no memory for it
};

class RuntimeCompiler {
 public:
  // The first of these libraries that can be loaded; the error is the first one's.
  static std::optional<RuntimeCompiler> load(std::string* error, const std::vector<const char*>& libraries = {
                                                                     "libnvrtc.so.13", "libnvrtc.so.12"});
  // For cards of a compute capability, as 90 for 9.0. The error is one line.
  std::optional<DeviceBinary> compile(const DeviceSource& source, int capability, std::string* error) const;

 private:
  RuntimeCompiler() = default;

  decltype(&nvrtcCreateProgram) create_ = nullptr;
  decltype(&nvrtcCompileProgram) compile_ = nullptr;
  decltype(&nvrtcGetProgramLogSize) log_bytes_ = nullptr;
  decltype(&nvrtcGetProgramLog) log_ = nullptr;
  decltype(&nvrtcGetCUBINSize) cubin_bytes_ = nullptr;
  decltype(&nvrtcGetCUBIN) cubin_ = nullptr;
  decltype(&nvrtcGetPTXSize) ptx_bytes_ = nullptr;
  decltype(&nvrtcGetPTX) ptx_ = nullptr;
  decltype(&nvrtcDestroyProgram) destroy_ = nullptr;
};

// The kernel of that name, loaded into the current context.
std::optional<CUfunction> load_kernel(const driver::Table& table, const DeviceBinary& binary,
                                      const char* name, NoKernel* why_not);

}  // namespace spillway::trainer
