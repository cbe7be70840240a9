// Which memory an error is about: libraries wrap a failed allocation in errors of their own.
//
// Thread-safety: pure functions. Errors: none.
#pragma once
#include <charconv>
#include <cstdint>
#include <new>
#include <optional>
#include <string>

namespace spillway::trainer {

// Bytes of ordinary memory that the host refused, 0 where the error does not say how many. None: the error is
// another one.
inline std::optional<uint64_t> refused_by_host(const std::exception& error) {
  if (dynamic_cast<const std::bad_alloc*>(&error) != nullptr) return 0;
  const std::string text = error.what();
  if (text.find("DefaultCPUAllocator") == std::string::npos) return std::nullopt;
  static constexpr std::string_view kBefore = "tried to allocate ";
  const size_t at = text.find(kBefore);
  uint64_t bytes = 0;
  if (at != std::string::npos)
    std::from_chars(text.data() + at + kBefore.size(), text.data() + text.size(), bytes);
  return bytes;
}

// Whether a plan move may serve it. NCCL says that it "Failed to CUDA calloc async 4194304 bytes".
inline bool says_out_of_memory(const std::string& text) {
  for (const char* sign : {"out of memory", "CUBLAS_STATUS_ALLOC_FAILED", "CUDNN_STATUS_ALLOC_FAILED",
                           "not enough memory", "Failed to CUDA"})
    if (text.find(sign) != std::string::npos) return true;
  return false;
}

}  // namespace spillway::trainer
