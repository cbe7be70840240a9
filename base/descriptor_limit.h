// Room for file descriptors: each page that processes share takes one, and the usual 1024 are soon
// used up.
//
// Thread-safety: any thread; the limit is the process's. It is raised to what the system allows, and stays
// so.
#pragma once
#include <sys/resource.h>

#include <cstdint>

namespace spillway {

// False: it is as high as it may be.
inline bool raise_descriptor_limit() noexcept {
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur >= limit.rlim_max) return false;
  limit.rlim_cur = limit.rlim_max;
  return setrlimit(RLIMIT_NOFILE, &limit) == 0;
}

inline uint64_t descriptor_limit() noexcept {
  rlimit limit{};
  return getrlimit(RLIMIT_NOFILE, &limit) == 0 ? limit.rlim_cur : 0;
}

}  // namespace spillway
