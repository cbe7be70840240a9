// Which export a name means in a version of CUDA, as cuGetProcAddress answers it.
//
// Thread-safety: constant data. Errors: null for a name without a function in that version.
#pragma once
#include <cstring>

namespace spillway::driver {

struct Version {
  const char* base;  // the name without suffix
  int first;         // the CUDA version in which it came, as 12040
  bool per_thread_stream;
  const char* name;  // the export
};

inline constexpr Version kVersions[] = {
#define SPILLWAY_DRIVER_VERSION(base, first, per_thread, name) {base, first, (per_thread) != 0, name},
#include "driver/versions.inc"
#undef SPILLWAY_DRIVER_VERSION
};

// The newest that is not newer than asked for, and the variant for a default stream per thread where that is
// asked for and there is one.
inline const char* export_named(const char* base, int cuda_version, bool per_thread_stream) {
  const Version* best = nullptr;
  for (const Version& known : kVersions) {
    if (known.first > cuda_version || (known.per_thread_stream && !per_thread_stream) ||
        std::strcmp(known.base, base) != 0)
      continue;
    const bool better = best == nullptr || known.per_thread_stream > best->per_thread_stream ||
                        (known.per_thread_stream == best->per_thread_stream && known.first > best->first);
    if (better) best = &known;
  }
  return best == nullptr ? nullptr : best->name;
}

}  // namespace spillway::driver
