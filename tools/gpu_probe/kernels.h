// The probe's kernels, as text that the driver compiles for its card.
//
// Thread-safety: made once, by the first thread that asks; launches are the driver's.
#pragma once
#include <cstdint>

#include "tools/gpu_probe/driver.h"

extern const char kLateKernel[];  // PTX: "late", which needs much local memory

namespace spillway::probe {

class Kernels {
 public:
  Kernels();
  CUresult spin(CUstream stream, double milliseconds) const;
  CUresult fill(CUstream stream, CUdeviceptr to, uint64_t count, uint32_t value) const;
  CUresult add_one(CUstream stream, CUdeviceptr to, uint64_t count) const;
  CUresult sum(CUstream stream, CUdeviceptr from, uint64_t count, CUdeviceptr out) const;
  // One of atomic_u32, atomic_sys, atomic_f32 and atomic_cas, by `blocks` of 256 threads.
  CUresult atomic(const char* name, CUstream stream, CUdeviceptr to, uint32_t count, unsigned blocks) const;
  void end_spinning(CUstream stream) const;  // the kernel that spins there ends at once, and is waited for
  bool computes = false;                     // a kernel wrote what it should
  CUresult result = CUDA_SUCCESS;            // of loading them

 private:
  CUresult launch(CUfunction function, CUstream stream, unsigned blocks, void** arguments) const;
  CUmodule module_ = nullptr;
  CUfunction spin_ = nullptr, fill_ = nullptr, add_one_ = nullptr, sum_ = nullptr;
  CUdeviceptr stop_ = 0;  // host memory that the device reads
  uint32_t* stop_flag_ = nullptr;
};

const Kernels& kernels();
// Where kernels compute nothing (a simulated card) a line says so. Returns whether they do.
bool kernels_or_say();

// A stream that ends with the value.
class Stream {
 public:
  Stream() { device(), cuda().cuStreamCreate(&handle, CU_STREAM_NON_BLOCKING); }
  ~Stream() { cuda().cuStreamDestroy(handle); }
  Stream(const Stream&) = delete;
  Stream& operator=(const Stream&) = delete;
  void wait() const { cuda().cuStreamSynchronize(handle); }
  CUstream handle = nullptr;
};

}  // namespace spillway::probe
