// Whether an error is one that a plan move may serve: libraries wrap a failed allocation in errors of their
// own.
//
// Thread-safety: a pure function. Errors: none.
#pragma once
#include <string>

namespace spillway::trainer {

inline bool says_out_of_memory(const std::string& text) {
  for (const char* sign :
       {"out of memory", "CUBLAS_STATUS_ALLOC_FAILED", "CUDNN_STATUS_ALLOC_FAILED", "not enough memory"})
    if (text.find(sign) != std::string::npos) return true;
  return false;
}

}  // namespace spillway::trainer
